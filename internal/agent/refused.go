package agent

import (
	"sync"
	"time"
)

// refusalsEvery is how often refused calls are logged at most: any user can make any number of them.
const refusalsEvery = time.Minute

// refusals are the calls that were refused since the last line about them.
type refusals struct {
	mu    sync.Mutex
	last  time.Time
	since int
}

// Refused implements api.Refuser: somebody who is not root wanted to change a lease.
func (a *Agent) Refused(uid uint32, call string) {
	r := &a.refusals
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since++
	if now := a.now(); now.Sub(r.last) >= refusalsEvery {
		a.log.WithField("uid", uid).
			WithField("call", call).
			WithField("refused", r.since).
			Warn("a user who is not root wanted to change a lease; refused")
		r.last, r.since = now, 0
	}
}
