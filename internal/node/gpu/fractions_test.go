package gpu_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"caelum/internal/node/gpu"
	"caelum/internal/node/gpu/gputest"
	"caelum/internal/node/jobcgroup"
)

// divided are two L40S with four fractions each.
type divided struct {
	*gpu.Fractions
	t      *testing.T
	groups gputest.FakeGroups
}

func newDivided(t *testing.T, limits gpu.MemoryLimits) *divided {
	d := &divided{t: t}
	d.Fractions = gpu.WithFractions(gputest.New(t, "L40S-48GB", 2).NVML, gpu.FractionOptions{
		Units: map[string]int{"l40s": 4}, Limits: limits, Groups: &d.groups,
	})
	if gpus, err := d.GPUs(); err != nil || len(gpus) != 2 || !d.Divided(1) {
		t.Fatalf("%+v, %v", gpus, err)
	}
	return d
}

func (d *divided) create(g, start int) int {
	d.t.Helper()
	in, err := d.Create(g, "1f.11gb", start)
	if err != nil {
		d.t.Fatal(err)
	}
	return in.GI
}

func (d *divided) group(k int) jobcgroup.Group {
	d.t.Helper()
	g, err := d.groups.Make(fmt.Sprint("job_", k))
	if err != nil {
		d.t.Fatal(err)
	}
	return g
}

// hangingLimits are the limits of a driver in which calls for GPU 0 do not return until hang is closed.
type hangingLimits struct {
	gputest.FakeLimits
	called, hang chan struct{}
}

func (h *hangingLimits) SetLimit(on int, cgroup string, bytes uint64) error {
	if on == 0 {
		h.called <- struct{}{}
		<-h.hang
	}
	return h.FakeLimits.SetLimit(on, cgroup, bytes)
}

// TestHangingLimits checks that a GPU whose driver calls do not return delays neither the jobs on other GPUs nor the
// destruction of its own idle fractions, for which a pass would wait.
func TestHangingLimits(t *testing.T) {
	limits := &hangingLimits{called: make(chan struct{}), hang: make(chan struct{})}
	d := newDivided(t, limits)
	hung, idle, other := d.create(0, 0), d.create(0, 1), d.create(1, 0)
	hanging, ended := make(chan error, 1), make(chan error, 1)
	job, neighbour := d.group(1), d.group(2)
	go func() { hanging <- d.Limit(0, hung, job) }()
	<-limits.called
	go func() { ended <- errors.Join(d.Limit(1, other, neighbour), d.Destroy(1, other), d.Destroy(0, idle)) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the calls wait for the hanging GPU")
	}
	if d.groups.Exists(neighbour) {
		t.Error("the cgroup of the job on the other GPU exists")
	}
	close(limits.hang)
	if err := <-hanging; err != nil {
		t.Error(err)
	}
}

// TestSharedCgroup checks that the cgroup of a job with fractions of two GPUs is removed with the last of them, also if
// both are released at the same time.
func TestSharedCgroup(t *testing.T) {
	d := newDivided(t, new(gputest.FakeLimits))
	var on [2]int
	for g := range on {
		on[g] = d.create(g, 0)
	}
	for k := range 500 {
		job := d.group(k)
		for g, gi := range on {
			if err := d.Limit(g, gi, job); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		for g, gi := range on {
			release := func() {
				if err := d.Unlimit(g, gi); err != nil {
					t.Error(err)
				}
			}
			if k > 0 {
				all.Go(release)
			} else if release(); d.groups.Exists(job) != (g == 0) {
				t.Errorf("after the release on GPU %d, the cgroup exists: %v", g, g != 0)
			}
		}
		if all.Wait(); d.groups.Exists(job) {
			t.Fatalf("round %d: the cgroup of no job exists", k)
		}
	}
}

// TestCgroupNotRemoved checks that an instance is not destroyed before its last job's cgroup is removed.
func TestCgroupNotRemoved(t *testing.T) {
	d := newDivided(t, new(gputest.FakeLimits))
	gi, job, busy := d.create(0, 0), d.group(1), errors.New("busy")
	if err := d.Limit(0, gi, job); err != nil {
		t.Fatal(err)
	}
	d.groups.Fail("Remove", busy)
	for range 2 {
		if err := d.Destroy(0, gi); !errors.Is(err, busy) {
			t.Errorf("the cgroup cannot be removed: %v", err)
		}
	}
	d.groups.Fail("Remove", nil)
	if err := d.Destroy(0, gi); err != nil || d.groups.Exists(job) {
		t.Errorf("the cgroup exists: %v, %v", d.groups.Exists(job), err)
	}
}
