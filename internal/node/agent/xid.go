package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/state"
)

// xidRetry is the pause before the agent registers for the Xid errors of a GPU again, for example after the GPU was
// lost.
const xidRetry = 10 * time.Second

// watchXids records the Xid errors of all GPUs until ctx is done. It does not wait for driver calls that hang.
func (a *Agent) watchXids(ctx context.Context) {
	var tasks sync.WaitGroup
	for g := range a.node.Cards {
		tasks.Go(func() {
			logged := ""
			for ctx.Err() == nil {
				err := a.hw.WatchXids(ctx, g, a.noteXid)
				if err != nil && !errors.Is(err, gpu.ErrLost) && err.Error() != logged {
					logged = err.Error()
					a.log.WithError(err).WithField("gpu", g).Warn("couldn't watch the GPU for Xid errors")
				}
				select {
				case <-ctx.Done():
				case <-time.After(xidRetry):
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		tasks.Wait()
		close(ended)
	}()
	<-ctx.Done()
	select {
	case <-ended:
	case <-time.After(stopTimeout):
	}
}

// xidOn identifies the Xid errors of one kind that one job has caused on a GPU. The agent logs only one of them per
// minute (logInterval), because a program can cause some Xid errors at any rate.
type xidOn struct {
	gpu, code int
	job       uint32
}

// noteXid records an Xid error of a GPU. After a fatal error, it withdraws the GPU.
func (a *Agent) noteXid(x gpu.Xid) {
	c := a.node.Cards[x.GPU]
	count, uuid := a.countXid(c, x)
	if a.mayLog(xidOn{x.GPU, x.Code, count.Job}) {
		log := a.log.WithField("gpu", x.GPU).WithField("xid", x.Code).WithField("count", count.Count)
		if x.GI >= 0 {
			log = log.WithField("gi", x.GI).WithField("ci", x.CI)
		}
		if uuid != "" {
			log = log.WithField("uuid", uuid)
		}
		if count.Job != 0 {
			log = log.WithField("job", count.Job)
		}
		log.Warn("the driver reported " + gpu.XidText(x.Code))
	}
	a.metrics.Xid(x.GPU, x.Code)
	if count.Job != 0 {
		a.usage.NoteXid(count.Job, x.Code)
	}
	if !gpu.XidFatal(x.Code) {
		return
	}
	if x.Code == gpu.XidOffBus {
		if err := a.compareGPU(x.GPU, c); err != nil {
			a.log.WithError(err).WithField("gpu", x.GPU).Error("couldn't compare the GPU with the ledger")
		}
	}
	if !a.node.Usable(c) { // for example, the comparison has found that the GPU is lost (takeBack)
		return
	}
	if err := a.ledger.SetMeta(xidKey(c), strconv.Itoa(x.Code)); err != nil {
		a.log.WithError(err).WithField("gpu", x.GPU).
			Error("couldn't record the fatal Xid error; after a restart, the agent will offer the GPU again")
	}
	a.withdraw(c, x.Code)
	a.publisher.Soon()
}

// countXid adds an Xid error to the GPU's counts. It returns the count of its kind, and the UUID of the instance with
// the error, if the agent has created the instance.
func (a *Agent) countXid(c *state.Card, x gpu.Xid) (count api.XidCount, uuid string) {
	a.node.Lock()
	defer a.node.Unlock()
	k := slices.IndexFunc(c.Xids, func(n api.XidCount) bool { return n.Xid == x.Code })
	if k < 0 {
		k = len(c.Xids)
		c.Xids = append(c.Xids, api.XidCount{Xid: x.Code, Text: gpu.XidText(x.Code), Fatal: gpu.XidFatal(x.Code)})
	}
	n := &c.Xids[k]
	n.Count++
	n.At, n.On, n.Job = a.node.Now().Unix(), "", 0
	for _, in := range c.Ours {
		if in.GI == x.GI {
			n.On, n.Job, uuid = fmt.Sprintf("%s at %d", in.Profile, in.Start), in.Job, in.UUID
		}
	}
	return *n, uuid
}

// withdraw stops offering a GPU after a fatal Xid error. Jobs that hold its slices keep them.
func (a *Agent) withdraw(c *state.Card, code int) {
	a.node.Lock()
	c.Withdrawn, c.Problem = code, gpu.Withdrawn(c.Index, code)
	a.node.Version++
	a.node.Unlock()
	a.log.WithField("gpu", c.Index).Error("not managed: " + gpu.Withdrawn(c.Index, code))
}

// xidKey returns the ledger's key for the fatal Xid error of a GPU. Until the next boot, the ledger keeps the error, so
// that a restart of the agent does not offer the GPU again.
func xidKey(c *state.Card) string { return "xid " + c.UUID }

// withdrawAgain withdraws the GPUs that an earlier agent withdrew since the last boot.
func (a *Agent) withdrawAgain() error {
	for _, c := range a.node.Cards {
		text, err := a.ledger.Meta(xidKey(c))
		if err != nil {
			return err
		}
		if code, err := strconv.Atoi(text); err == nil && a.node.Usable(c) {
			a.withdraw(c, code)
		}
	}
	return nil
}

// Readmit implements api.Readmitter. It resumes managing a GPU that the agent withdrew after a fatal Xid error.
func (a *Agent) Readmit(_ context.Context, g int) error {
	refused := func(reason string) error {
		return &api.Error{Code: http.StatusConflict, Message: fmt.Sprintf("couldn't readmit GPU %d: %s", g, reason)}
	}
	if g < 0 || g >= len(a.node.Cards) {
		return refused("this node has no such GPU")
	}
	c := a.node.Cards[g]
	c.Hardware.Lock()
	defer c.Hardware.Unlock()
	a.node.Lock()
	code := c.Withdrawn
	a.node.Unlock()
	if code == 0 {
		return refused("it was not withdrawn after an Xid error")
	}
	if err := a.ledger.SetMeta(xidKey(c), ""); err != nil {
		return err
	}
	err := a.takeBack(g, c)
	if err == nil && !a.node.Usable(c) {
		err = refused("the driver cannot use it; see `nvidia-smi -L` and the kernel log, or reboot the node")
	}
	if err != nil {
		return errors.Join(err, a.ledger.SetMeta(xidKey(c), strconv.Itoa(code)))
	}
	a.node.Lock()
	c.Withdrawn = 0
	a.node.Unlock()
	a.publisher.Soon()
	return nil
}
