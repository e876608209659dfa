package agent

import (
	"maps"
	"sync"
	"time"
)

// logInterval is the minimum time between log lines about the same instance or user. Without this limit, a user could
// fill the log.
const logInterval = time.Minute

// logLimit maps each key to the time of its last log line, if that was written less than logInterval ago.
type logLimit struct {
	mu   sync.Mutex
	last map[any]time.Time
}

// mayLog reports whether the last log line about key is at least logInterval old. If so, the caller must log a line
// about key.
func (a *Agent) mayLog(key any) bool {
	l := &a.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	now := a.node.Now()
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

// refusals counts the calls that the agent has refused since it last logged a refusal. The agent does not log each of
// them, because any user can make any number of calls that are refused.
type refusals struct {
	mu    sync.Mutex
	last  time.Time
	since int
}

// Refused implements api.Refuser. It logs that the agent refused a call because the caller is not root.
func (a *Agent) Refused(uid uint32, call string) {
	r := &a.refusals
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since++
	if now := a.node.Now(); now.Sub(r.last) >= logInterval {
		a.log.WithField("uid", uid).
			WithField("call", call).
			WithField("refused", r.since).
			Warn("lease change refused: caller is not root")
		r.last, r.since = now, 0
	}
}
