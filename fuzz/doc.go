// Package fuzz holds the fuzz targets: one for every door through which bytes
// enter that nobody vouches for. A target states what must hold for any bytes
// at all, which is never only that nothing panics.
//
// The seeds are in testdata/fuzz, one folder a target; go test runs them as
// ordinary tests. The package has no other code.
package fuzz
