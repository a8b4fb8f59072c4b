// Package bench measures Leafproof end to end, beside the tools that people would
// otherwise use: put beside cp and sync, a verified read beside cat, roots beside
// b3sum.
//
// Its figures are ratios of things run back to back on one machine. They prove
// nothing about another machine, and nothing here is a pass or a fail. [Run] is what
// the command `leafproof bench` does in a minute; the benchmarks say more. Run them with
//
//	go test ./bench -run '^$' -bench . -count 6 | tee new.txt
//	go tool -modfile=tools/go.mod benchstat -col /tool new.txt
//
// results/ keeps what was measured, with the machine named.
package bench
