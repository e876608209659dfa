package agent

import (
	"sync"
	"time"
)

// refusalsEvery is the shortest time between two log lines about refused calls, since any user can make any number of
// such calls.
const refusalsEvery = time.Minute

// refusals counts the calls that were refused since the last log line about them.
type refusals struct {
	mu    sync.Mutex
	last  time.Time
	since int
}

// Refused implements api.Refuser. It logs a call that was refused because the caller is not root.
func (a *Agent) Refused(uid uint32, call string) {
	r := &a.refusals
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since++
	if now := a.now(); now.Sub(r.last) >= refusalsEvery {
		a.log.WithField("uid", uid).
			WithField("call", call).
			WithField("refused", r.since).
			Warn("lease change refused: caller is not root")
		r.last, r.since = now, 0
	}
}
