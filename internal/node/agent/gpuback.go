package agent

import (
	"fmt"
	"reflect"
	"time"

	"caelum/internal/node/gpu"
	"caelum/internal/node/state"
)

// discoverTimeout is the maximum time that a comparison waits for an unusable GPU, because driver calls for such a GPU
// may hang.
const discoverTimeout = time.Second

// takeBack resumes managing a lost GPU once the driver can reach it again. If the GPU already had a problem when the
// agent started, or if another GPU now has the same index, the agent does not know the GPU's slots and profiles. The
// agent then exits, and systemd restarts it. The caller holds the card's hardware lock.
func (a *Agent) takeBack(g int, c *state.Card) error {
	patience := time.Duration(0) // 0 if an earlier call has already waited for the running discovery
	if c.Asked == nil {
		patience = discoverTimeout
		c.Asked = make(chan gpu.GPU, 1)
		go func(answer chan<- gpu.GPU) { answer <- a.hw.Discover(g) }(c.Asked)
	}
	var found gpu.GPU
	select {
	case found = <-c.Asked:
		c.Asked = nil
	case <-time.After(patience):
		return nil // the next comparison will receive the result
	}
	if found = found.Managed(a.node.FullGPUs); found.Problem != "" {
		return nil
	}
	if c.Model == nil || found.UUID != c.UUID || found.Minor != c.Minor ||
		!reflect.DeepEqual(found.Model.Profiles, c.Model.Profiles) {
		select {
		case a.outdated <- fmt.Errorf("GPU %d has become usable; the agent will restart to read its profiles", g):
		default:
		}
		return nil
	}
	if err := a.repair(g, c); err != nil {
		return err
	}
	a.closeIdle([]*state.Card{c})
	a.node.Lock()
	c.Problem = ""
	a.node.Version++
	a.node.Unlock()
	a.log.WithField("gpu", g).Warn("the GPU is available again; the agent has resumed managing it")
	return nil
}
