package agent

import (
	"sync"

	"caelum/internal/gpu"
)

// searches lets the prologs that begin while a scan is running share the next scan. They cannot use the running scan,
// because it may have begun before the files of their instances belonged to root.
type searches struct {
	mu      sync.Mutex
	next    *search
	running sync.Mutex
}

// search is a scan for the processes that have one of the node's capability files or the device file of a GPU open.
type search struct {
	done chan struct{}
	held gpu.Held
	err  error
}

// wait waits for the scan to end and returns its result.
func (s *search) wait() (gpu.Held, error) {
	<-s.done
	return s.held, s.err
}

// search starts a scan, or returns a scan that has not begun yet. The scan runs while the prolog waits for slurmctld.
// Its result is valid for every instance whose files belonged to root before the call to search.
func (a *Agent) search() *search {
	a.searches.mu.Lock()
	defer a.searches.mu.Unlock()
	if s := a.searches.next; s != nil {
		return s // a scan that has not begun yet
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

// scanAll searches for processes that hold open a capability file of any instance that can exist on the node.
func (a *Agent) scanAll() (gpu.Held, error) {
	var wanted []gpu.Device
	for _, c := range a.cards {
		all, err := a.possible(c)
		if err != nil {
			return gpu.Held{}, ignoreNoCapabilities(err)
		}
		wanted = append(wanted, all...)
	}
	return a.scan(wanted)
}
