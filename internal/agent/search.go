package agent

import (
	"sync"

	"caelum/internal/gpu"
)

// searches lets prologs that come while a scan runs share the next one: a scan that began earlier says nothing for
// them.
type searches struct {
	mu      sync.Mutex
	next    *search
	running sync.Mutex
}

// search is a scan for all capabilities that there can be on the node.
type search struct {
	done chan struct{}
	held gpu.Held
	err  error
}

// wait returns the result of the scan, when there is one.
func (s *search) wait() (gpu.Held, error) {
	<-s.done
	return s.held, s.err
}

// search has a scan begin, at the earliest now, while a prolog waits for slurmctld. It serves for every instance whose
// files have been closed since before.
func (a *Agent) search() *search {
	a.searches.mu.Lock()
	defer a.searches.mu.Unlock()
	if s := a.searches.next; s != nil {
		return s // it has not begun
	}
	s := &search{done: make(chan struct{})}
	a.searches.next = s
	go func() {
		defer close(s.done)
		a.searches.running.Lock()
		defer a.searches.running.Unlock()
		a.searches.mu.Lock()
		a.searches.next = nil
		a.searches.mu.Unlock()
		s.held, s.err = a.scanAll()
	}()
	return s
}

// scanAll scans for the capabilities of every instance that there can be.
func (a *Agent) scanAll() (gpu.Held, error) {
	var wanted []gpu.Device
	for _, c := range a.cards {
		all, err := a.caps.Possible(c.Minor)
		if err != nil {
			return gpu.Held{}, ignoreNoCapabilities(err)
		}
		wanted = append(wanted, all...)
	}
	return a.scan(wanted)
}
