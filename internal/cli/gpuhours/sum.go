package gpuhours

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Keys lists the properties by which Sum can group runs, in the order of the columns of `caelum usage`.
var Keys = []string{"account", "user", "partition"}

// Total is the GPU time of all runs with the same values of some keys. The other keys are empty.
type Total struct {
	Account        string  `json:"account,omitempty"`
	User           string  `json:"user,omitempty"`
	Partition      string  `json:"partition,omitempty"`
	Runs           int     `json:"runs"`
	SliceHours     float64 `json:"slice_hours"`
	GPUHours       float64 `json:"gpu_hours"`
	UnknownRuns    int     `json:"unknown_runs,omitempty"`    // runs with slices that are not included in GPUHours
	UnknownRunning int     `json:"unknown_running,omitempty"` // the number of UnknownRuns that have not ended
}

// Key returns the value of one of Keys.
func (t *Total) Key(name string) *string {
	switch name {
	case "account":
		return &t.Account
	case "user":
		return &t.User
	}
	return &t.Partition
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
	at := map[Total]int{}
	totals := []Total{}
	for _, r := range runs {
		id := Total{Account: r.Account, User: r.User, Partition: r.Partition}
		for _, key := range Keys {
			if !slices.Contains(keys, key) {
				*id.Key(key) = ""
			}
		}
		k, known := at[id]
		if !known {
			k = len(totals)
			at[id] = k
			totals = append(totals, id)
		}
		totals[k].add(r)
	}
	slices.SortStableFunc(totals, func(a, b Total) int {
		order := cmp.Compare(b.GPUHours, a.GPUHours)
		for _, key := range keys {
			order = cmp.Or(order, cmp.Compare(*a.Key(key), *b.Key(key)))
		}
		return order
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
