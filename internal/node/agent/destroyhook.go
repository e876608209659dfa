package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"caelum/internal/failpoint"
	"caelum/internal/hook"
	"caelum/internal/node/gpu"
	"caelum/internal/node/state"
)

// A monitoring program such as DCGM can keep an instance in use, in which case the driver refuses to destroy the
// instance (NVIDIA/DCGM#276). The site's hook (destroy_hook) then pauses the program, the agent destroys the instance,
// and the hook resumes the program (docs/internals/slices.md, "The destroy hook"). The agent does the same if the
// driver refuses to switch off a GPU's MIG mode. No lock is held while the hook runs.

const (
	// hookLimit limits the duration of one call to the hook. It is shorter than a prolog's default wait (60 s).
	hookLimit = 20 * time.Second
	// hookBackoff is the time after which the agent calls the hook again for an instance that the driver did not
	// destroy while the monitoring program was paused.
	hookBackoff = 10 * time.Minute
	// hookRetry is the time after which the agent repeats a resume that failed.
	hookRetry = time.Minute
	// pausedMeta is the ledger key of the instance for which the hook last paused the monitoring program.
	pausedMeta = "paused"
)

// hookTarget identifies an instance for the hook.
type hookTarget struct {
	GPU  int    `json:"gpu"` // the index according to NVML
	GI   int    `json:"gi"`
	UUID string `json:"uuid"`
}

// args returns the arguments for the hook: the GPU's index, the GPU instance id or "full", and the UUID.
func (t hookTarget) args() []string {
	gi := strconv.Itoa(t.GI)
	if t.GI == gpu.FullGI {
		gi = "full"
	}
	return []string{strconv.Itoa(t.GPU), gi, t.UUID}
}

// wantHook makes the hook run for an instance or a GPU that is in use according to the driver. The hook does not run
// for an instance or a GPU that a user's process holds open.
func (a *Agent) wantHook(s *state.HookState, holders []gpu.Process) {
	if a.cfg.DestroyHook == "" {
		return
	}
	for _, h := range holders {
		if !h.Root() {
			return
		}
	}
	a.node.Lock()
	defer a.node.Unlock()
	if !s.HookedAt.IsZero() && a.node.Now().Sub(s.HookedAt) < hookBackoff {
		return
	}
	s.WantsHook = true
	select {
	case a.hooks <- struct{}{}:
	default: // runHooks has already been notified
	}
}

// hookTask is an attempt to destroy an instance, or to switch off a GPU's MIG mode if in is nil.
type hookTask struct {
	gpu   int
	in    *state.Instance
	state *state.HookState
}

// hookWanted returns a task for which the hook must run, or nil.
func (a *Agent) hookWanted() *hookTask {
	a.node.Lock()
	defer a.node.Unlock()
	for g, c := range a.node.Cards {
		for _, in := range c.Ours {
			if in.WantsHook {
				return &hookTask{g, in, &in.HookState}
			}
		}
		if c.WantsHook {
			return &hookTask{g, nil, &c.HookState}
		}
	}
	return nil
}

// hooking reports whether the agent will soon call the hook.
func (a *Agent) hooking() bool { return a.hookWanted() != nil }

// hooksEnded returns the number of finished attempts that used the hook.
func (a *Agent) hooksEnded() int {
	a.node.Lock()
	defer a.node.Unlock()
	return a.hookRuns
}

// runHooks calls the hook for the instances and GPUs that need it, one after another, until ctx is done. It first
// resumes a monitoring program that an earlier agent paused.
func (a *Agent) runHooks(ctx context.Context) {
	resumed := a.resume()
	for {
		var retry <-chan time.Time
		if !resumed {
			retry = time.After(hookRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-retry:
			resumed = a.resume()
		case <-a.hooks:
		}
		for ctx.Err() == nil {
			t := a.hookWanted()
			if t == nil {
				break
			}
			resumed = a.doPaused(ctx, *t, resumed)
		}
	}
}

// doPaused carries out a task while the monitoring program is paused and reports whether the hook has resumed the
// program. If resumed is false, an earlier attempt to resume the program failed, and doPaused abandons the task.
func (a *Agent) doPaused(ctx context.Context, t hookTask, resumed bool) bool {
	c := a.node.Cards[t.gpu]
	at, what, do := hookTarget{c.Index, gpu.FullGI, c.UUID}, "the GPU's MIG mode", a.makeFullHeld
	if t.in != nil {
		at.GI, at.UUID = t.in.GI, t.in.UUID
		what = fmt.Sprintf("%s at %d", t.in.Profile, t.in.Start)
		do = func(g int) error { return a.destroyHeld(g, t.in) }
	}
	err := errors.New("the program that was paused earlier has not been resumed")
	if resumed {
		err = a.pause(ctx, at)
	}
	a.node.Lock()
	t.state.HookedAt = a.node.Now() // another refusal by the driver does not make the hook run again soon
	a.node.Unlock()
	if err == nil {
		err = do(t.gpu)
	}
	a.node.Lock()
	t.state.WantsHook = false // waiting prologs can now use other slices or requeue their jobs
	a.hookRuns++
	a.node.Version++
	a.node.Unlock()
	if log := a.log.WithField("gpu", t.gpu).WithField("uuid", at.UUID); err != nil {
		log.WithError(err).Errorf("%s is still stuck after the destroy hook", what)
	} else {
		log.Infof("%s is no longer stuck after the destroy hook", what)
	}
	a.publisher.Soon()
	return a.resume()
}

// pause records in the ledger that the hook must resume the monitoring program, and calls the hook.
func (a *Agent) pause(ctx context.Context, at hookTarget) error {
	if _, err := hook.Path(a.cfg.DestroyHook); err != nil {
		return err // the hook could not resume the program either
	}
	text, err := json.Marshal(at)
	if err != nil {
		return err
	}
	if err := a.ledger.SetMeta(pausedMeta, string(text)); err != nil {
		return err
	}
	failpoint.Hit(failpoint.PauseRecorded)
	err = a.callHook(ctx, "pause", at)
	failpoint.Hit(failpoint.Paused)
	return err
}

// destroyHeld destroys a stuck instance, unless a user's process has started to use it in the meantime.
func (a *Agent) destroyHeld(g int, in *state.Instance) error {
	c := a.node.Cards[g]
	c.Hardware.Lock()
	defer c.Hardware.Unlock()
	a.node.Lock()
	exists := false
	for _, other := range c.Ours {
		exists = exists || other == in
	}
	a.node.Unlock()
	if !exists {
		return nil // a comparison has destroyed the instance
	}
	if used, err := a.inUse(g, in); used {
		return errors.Join(usedError(g, in), err)
	}
	return a.destroy(g, in, new(spent))
}

// resume calls the hook if the ledger records that the monitoring program was paused, and deletes the record if the
// call succeeds. It is not interrupted when the agent stops, so the monitoring program is resumed even then. The result
// is false if the monitoring program must still be resumed.
func (a *Agent) resume() bool {
	text, err := a.ledger.Meta(pausedMeta)
	if err == nil && text == "" {
		return true
	}
	if a.cfg.DestroyHook == "" {
		a.log.WithField("instance", text).Error("destroy_hook is no longer set, but the monitoring program was " +
			"paused; resume it yourself")
		return a.ledger.SetMeta(pausedMeta, "") == nil
	}
	var at hookTarget
	if err == nil {
		err = json.Unmarshal([]byte(text), &at)
	}
	if err == nil {
		err = a.callHook(context.Background(), "resume", at)
	}
	failpoint.Hit(failpoint.Resumed)
	if err == nil {
		err = a.ledger.SetMeta(pausedMeta, "")
	}
	if err != nil {
		a.log.WithError(err).Errorf("the destroy hook didn't resume the monitoring program; trying again in %v; "+
			"until then, the agent will not pause it again", hookRetry)
	}
	return err == nil
}

// callHook runs the hook with the action pause or resume and waits at most hookLimit for it to end.
func (a *Agent) callHook(ctx context.Context, action string, at hookTarget) error {
	asked := time.Now()
	err := hook.Run(ctx, a.cfg.DestroyHook, a.hookLimit, append([]string{action}, at.args()...)...)
	a.log.WithField("ms", milliseconds(time.Since(asked))).WithField("gpu", at.GPU).WithField("uuid", at.UUID).
		Infof("called the destroy hook: %s", action)
	return err
}
