package main

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for s, want := range map[string]time.Duration{
		"90m": 90 * time.Minute, "36h": 36 * time.Hour, "7d": 7 * day, "2w": 14 * day, "1w2d": 9 * day, "1d12h30m": day + 12*time.Hour + 30*time.Minute,
		"1.5h": 90 * time.Minute, "0d1s": time.Second,
		"": 0, "0": 0, "0s": 0, "7": 0, "d": 0, "-1d": 0, "1d-1h": 0, "1d+1h": 0, "1d1w": 0, "1.5d": 0, "1d 1h": 0, "soon": 0,
		"99999999w": 0, "106751d": 106751 * day, "106752d": 0, "106751d24h": 0,
	} {
		got, err := parseDuration(s)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("parseDuration(%q) = %v, %v, want %v", s, got, err, want)
		}
	}
}
