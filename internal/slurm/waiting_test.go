package slurm

import (
	"slices"
	"testing"
	"time"
)

func TestMemoryOfAJob(t *testing.T) {
	for text, want := range map[string]int{
		"cpu=2,mem=400000M,node=2,billing=2": 400000, "cpu=3,mem=250G,node=1": 256000,
		"mem=1.50T": 1572864, "mem=512K": 0, "mem=7": 7,
		"cpu=1,node=1": 0, "N/A": 0, "": 0, "mem=0": 0, "mem=": -1, "mem=xG": -1, "mem=-1G": -1, "mem=NaN": -1,
		"mem=1e300P": -1,
	} {
		got, err := tresMemory(text)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %d %v, want %d", text, got, err, want)
		}
	}
}

// TestSortWaiting checks that an expedited job comes first, and that jobs with equal priority are sorted by submission
// time and then by the id of the job or its array.
func TestSortWaiting(t *testing.T) {
	job := func(id, array uint32, priority uint64, submit int64) Waiting {
		return Waiting{Job: &Job{ID: id, ArrayJob: array, Priority: priority, Submit: time.Unix(submit, 0)}}
	}
	list := []Waiting{job(5, 0, 1, 30), job(6, 0, 1, 20), job(9, 4, 1, 20), job(3, 0, 1, 40), job(8, 0, 2, 50)}
	expedited := job(7, 0, 1, 60)
	expedited.Expedited = true
	list = append(list, expedited)
	SortWaiting(list)
	var ids []uint32
	for _, w := range list {
		ids = append(ids, w.ID)
	}
	if want := []uint32{7, 8, 9, 6, 5, 3}; !slices.Equal(ids, want) {
		t.Errorf("order %v, want %v", ids, want)
	}
}
