//go:build e2e

package e2efaults

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"caelum/contrib/devcluster/oracle"
)

// watch takes snapshots of slurmctld's nodes about seven times a second, except while slurmctld is down.
type watch struct {
	mu        sync.Mutex
	snapshots map[string][]oracle.Snapshot // by node
}

func (s *site) watch() *watch {
	s.t.Helper()
	w := &watch{snapshots: map[string][]oracle.Snapshot{}}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := s.Command(ctx, "", "root", "bash", "-c", oracle.SnapshotScript)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		_, err = cmd.StdinPipe() // the script ends when its stdin is closed
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		var look strings.Builder
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			fmt.Fprintln(&look, lines.Text())
			if !strings.HasPrefix(lines.Text(), "done ") {
				continue
			}
			if read, err := oracle.ReadSnapshots(strings.NewReader(look.String())); err == nil {
				w.mu.Lock()
				for _, l := range read {
					w.snapshots[l.Node] = append(w.snapshots[l.Node], l)
				}
				w.mu.Unlock()
			}
			look.Reset()
		}
		_ = cmd.Wait() // the error only means that the test stopped the command
	}()
	s.t.Cleanup(func() { cancel(); <-over })
	return w
}

// since returns the snapshots of a node that began after the given time.
func (w *watch) since(node string, at time.Time) []oracle.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.snapshots[node]
	i := slices.IndexFunc(all, func(l oracle.Snapshot) bool { return l.From >= at.UnixNano() })
	if i < 0 {
		return nil
	}
	return slices.Clone(all[i:])
}

// offers returns the slices that slurmctld can still allocate, according to its own counts.
func offers(l oracle.Snapshot) map[string]int {
	free := map[string]int{}
	for profile, total := range l.Total {
		if n := total - l.Used[profile]; n > 0 && profile != "closed" {
			free[profile] = n
		}
	}
	return free
}

// settled waits until a node's offers have been non-empty and unchanged for one second, and returns them.
func (w *watch) settled(s *site, node string) (now map[string]int) {
	s.t.Helper()
	s.Within("the offers of "+node+" have not changed for one second", func() bool {
		// On a slow machine, a snapshot can take a second.
		snapshots := w.since(node, time.Now().Add(-20*time.Second))
		first := len(snapshots) - 4
		for first > 0 && snapshots[len(snapshots)-1].From-snapshots[first].From < time.Second.Nanoseconds() {
			first--
		}
		if first < 0 || snapshots[len(snapshots)-1].From-snapshots[first].From < time.Second.Nanoseconds() {
			return false
		}
		snapshots = snapshots[first:]
		now = offers(snapshots[0])
		return len(now) > 0 &&
			!slices.ContainsFunc(snapshots, func(l oracle.Snapshot) bool { return !maps.Equal(offers(l), now) })
	})
	return now
}

// times lists measured times, which the tests print but do not check.
type times []time.Duration

func (all times) print(t *testing.T, what string) {
	t.Helper()
	if len(all) == 0 {
		t.Errorf("%s: the test measured no time", what)
		return
	}
	slices.Sort(all)
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
	t.Logf(
		"%s: median %v, p99 %v, maximum %v of %d measurements",
		what,
		round(all[len(all)/2]),
		round(all[(99*len(all)+99)/100-1]),
		round(all[len(all)-1]),
		len(all),
	)
}
