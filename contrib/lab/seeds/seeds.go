// Package seeds parses the -seeds option of the programs in contrib/lab/fractions, contrib/lab/learn,
// contrib/lab/sizing and contrib/lab/whole.
package seeds

import (
	"fmt"
	"strconv"
	"strings"
)

// Parse returns the seeds of a range such as 101-120, in ascending order, or a single seed such as 101. The error names
// a word that is not a number from 0 to 4294967295, or a range whose first number is greater than its last.
func Parse(text string) (all []uint64, err error) {
	first, last, ok := strings.Cut(text, "-")
	if !ok {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 32)
	if err != nil {
		return nil, err
	}
	to, err := strconv.ParseUint(last, 10, 32)
	if err != nil {
		return nil, err
	}
	for seed := from; seed <= to; seed++ {
		all = append(all, seed)
	}
	if all == nil {
		return nil, fmt.Errorf("%s: the first number is above the last", text)
	}
	return all, nil
}
