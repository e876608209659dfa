package seeds

import (
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string][]uint64{
		"101-103": {101, 102, 103}, "7": {7}, "7-7": {7},
		"7-6": nil, "3-1": nil, "": nil, "a": nil, "1-": nil, "1,2": nil,
		"4294967296": nil,
	} {
		if got, err := Parse(text); !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}
