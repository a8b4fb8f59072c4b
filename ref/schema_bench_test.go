package ref_test

import (
	"fmt"
	"strings"
	"testing"

	"leafproof/ref"
)

// many are 200 tools with 6 properties each, some 1.2 KB of schema.
func many(seed int) []ref.Declaration {
	var out []ref.Declaration
	for i := range 200 {
		var b strings.Builder
		for j := range 6 {
			fmt.Fprintf(&b, `,"property_%d_%d":{"type":"array","description":"What is meant by property %d of tool %d, at some length.","items":{"type":"object","properties":{"id":{"type":"integer"},"tags":{"type":"array","items":{"type":"string"}}},"required":["id"]}}`, seed, j, j, i)
		}
		out = append(out, ref.Declaration{Name: fmt.Sprintf("tool_%03d", i), Schema: []byte(`{"type":"object","properties":{` + b.String()[1:] + `},"required":[],"additionalProperties":false}`)})
	}
	return out
}

// BenchmarkRewrite is 200 schemas a turn: never seen before, and seen before.
func BenchmarkRewrite(b *testing.B) {
	for _, p := range ref.Profiles() {
		b.Run(fmt.Sprintf("first/%v", p), func(b *testing.B) {
			seed := 0
			for b.Loop() {
				b.StopTimer()
				seed++
				tools := many(seed)
				b.StartTimer()
				for _, d := range tools {
					if _, err := ref.Rewrite(d.Schema, p); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		b.Run(fmt.Sprintf("first/declare/%v", p), func(b *testing.B) {
			seed := 1 << 20
			for b.Loop() {
				b.StopTimer()
				seed++
				tools := many(seed)
				b.StartTimer()
				if _, err := ref.Declare(tools, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("again", func(b *testing.B) {
		tools := many(-1)
		for b.Loop() {
			for _, d := range tools {
				if _, err := ref.Rewrite(d.Schema, ref.ProfileAnthropic); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("again/declare", func(b *testing.B) {
		tools := many(-1)
		for b.Loop() {
			if _, err := ref.Declare(tools, ref.ProfileAnthropic); err != nil {
				b.Fatal(err)
			}
		}
	})
}
