package agent

import (
	"maps"
	"sync"
	"time"
)

// logInterval is the minimum time between two log lines about the same instance or user. It limits the number of log
// lines that a user can cause.
const logInterval = time.Minute

// logLimit contains the time of the last log line for each key, if that line was logged less than logInterval ago.
type logLimit struct {
	mu   sync.Mutex
	last map[any]time.Time
}

// mayLog reports whether the last log line about key was logged at least logInterval ago. If mayLog returns true, the
// caller must log a line.
func (a *Agent) mayLog(key any) bool {
	l := &a.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	now := a.now()
	maps.DeleteFunc(l.last, func(_ any, last time.Time) bool { return now.Sub(last) >= logInterval })
	if _, ok := l.last[key]; ok {
		return false
	}
	if l.last == nil {
		l.last = map[any]time.Time{}
	}
	l.last[key] = now
	return true
}

// refusals contains the number of calls that were rejected since the last log line about rejected calls. Any user can
// make any number of such calls.
type refusals struct {
	mu    sync.Mutex
	last  time.Time
	since int
}

// Refused implements api.Refuser. It logs that a call was rejected because the caller is not root.
func (a *Agent) Refused(uid uint32, call string) {
	r := &a.refusals
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since++
	if now := a.now(); now.Sub(r.last) >= logInterval {
		a.log.WithField("uid", uid).
			WithField("call", call).
			WithField("refused", r.since).
			Warn("lease change refused: caller is not root")
		r.last, r.since = now, 0
	}
}
