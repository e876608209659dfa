package gpuhours

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Keys lists the properties by which Sum can group runs, in the order of the columns of `caelum usage`.
var Keys = []string{"account", "user", "partition"}

// Total is the GPU time of all runs with the same values of the keys.
type Total struct {
	Keys                 []string // the values of the keys, in the order of Sum's argument
	Runs                 int
	SliceHours, GPUHours float64
	UnknownRuns          int // runs with slices whose fraction of a GPU is unknown, which makes GPUHours too low
	UnknownRunning       int // the number of UnknownRuns that have not ended
}

// Sum adds up the GPU time of the runs for each combination of values of the keys, which must be in Keys. The result is
// sorted by GPU-hours, highest first. If a key is unknown, the error names the valid keys.
func Sum(runs []Run, keys []string) ([]Total, error) {
	for k, key := range keys {
		if !slices.Contains(Keys, key) {
			return nil, fmt.Errorf("%q is not one of %s", key, strings.Join(Keys, ", "))
		}
		if slices.Contains(keys[:k], key) {
			return nil, fmt.Errorf("%s is given twice", key)
		}
	}
	at := map[string]int{}
	var totals []Total
	for _, r := range runs {
		values := make([]string, len(keys))
		for i, key := range keys {
			values[i] = map[string]string{"account": r.Account, "user": r.User, "partition": r.Partition}[key]
		}
		id := strings.Join(values, "\x00")
		k, known := at[id]
		if !known {
			k = len(totals)
			at[id] = k
			totals = append(totals, Total{Keys: values})
		}
		totals[k].add(r)
	}
	slices.SortStableFunc(totals, func(a, b Total) int {
		return cmp.Or(cmp.Compare(b.GPUHours, a.GPUHours), slices.Compare(a.Keys, b.Keys))
	})
	return totals, nil
}

func (t *Total) add(r Run) {
	t.Runs++
	t.SliceHours += r.SliceSeconds / 3600
	t.GPUHours += r.GPUSeconds / 3600
	if len(r.Unknown) > 0 {
		t.UnknownRuns++
		if !r.Ended {
			t.UnknownRunning++
		}
	}
}
