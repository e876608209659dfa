package agent

import (
	"fmt"
	"reflect"
	"time"

	"caelum/internal/gpu"
)

// discoverTimeout is how long a comparison waits for a GPU that was not usable: its driver calls may hang.
const discoverTimeout = time.Second

// takeBack manages a GPU again that was lost and is back. A GPU that had a problem when the agent started has no slots
// and no profiles in the agent, and neither has another GPU at its index: the agent then ends, and systemd starts it
// again. The caller holds the card's hardware lock.
func (a *Agent) takeBack(g int, c *card) error {
	patience := time.Duration(0) // a question that is under way was waited for when it was asked
	if c.asked == nil {
		patience = discoverTimeout
		c.asked = make(chan gpu.GPU, 1)
		go func(answer chan<- gpu.GPU) { answer <- a.hw.Discover(g) }(c.asked)
	}
	var found gpu.GPU
	select {
	case found = <-c.asked:
		c.asked = nil
	case <-time.After(patience):
		return nil // the next comparison takes the answer
	}
	if found.Problem != "" {
		return nil
	}
	if c.Model == nil || found.UUID != c.UUID || found.Minor != c.Minor ||
		!reflect.DeepEqual(found.Model.Profiles, c.Model.Profiles) {
		select {
		case a.outdated <- fmt.Errorf("GPU %d can be managed now: the agent starts again to read its profiles", g):
		default:
		}
		return nil
	}
	if err := a.repair(g, c); err != nil {
		return err
	}
	a.closeIdleOn([]*card{c})
	a.mu.Lock()
	c.Problem = ""
	a.version++
	a.mu.Unlock()
	a.log.WithField("gpu", g).Warn("the GPU is back: managed again")
	return nil
}
