package agent

import "caelum/internal/node/gpu"

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

// search starts a scan, which runs while the prolog waits for slurmctld. Its result is valid for every instance whose
// files belonged to root before the call to search.
func (a *Agent) search() *search {
	s := &search{done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.held, s.err = a.scanAll()
	}()
	return s
}

// scanAll searches for processes that hold open a capability file of any instance that can exist on the node.
func (a *Agent) scanAll() (gpu.Held, error) {
	var wanted []gpu.Device
	for _, c := range a.node.Cards {
		all, err := a.possible(c)
		if err != nil {
			return gpu.Held{}, ignoreNoCapabilities(err)
		}
		wanted = append(wanted, all...)
	}
	return a.scan(wanted)
}
