package api

import (
	"net/http"
	"sync"
	"time"
)

// These constants limit how often each user may call the agent. There is no limit for root, because the prolog and the
// epilog run as root.
const (
	// callBurst is the number of calls that a user can make without a pause. It is large enough for all tasks of a job
	// to call at the same time.
	callBurst = 50
	// callEvery is the minimum interval between a user's calls after the first callBurst calls.
	callEvery = 100 * time.Millisecond
	// maxCounted is the maximum number of users whose calls are counted separately. All others share one limit.
	maxCounted = 1024
	// allBurst and allEvery are the same limits for all users together, because prologs need the agent's CPU time and
	// locks.
	allBurst    = 2000
	allEvery    = 2 * time.Millisecond
	tooManyText = "too many calls to the agent by this user; wait a second between calls"
)

// limiter limits the rate of each user's calls.
type limiter struct {
	mu sync.Mutex
	// due maps each user to the time at which the next call would be due at a rate of one call per callEvery. Once that
	// time has passed, the user no longer needs an entry.
	due map[uint32]time.Time
	all time.Time // the same for all users together
}

// admit reports whether a user may make a call at the given time and records an admitted call.
func (l *limiter) admit(uid uint32, now time.Time) bool {
	if uid == 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.due[uid]; !known && len(l.due) >= maxCounted {
		for user, due := range l.due {
			if due.Before(now) {
				delete(l.due, user)
			}
		}
		if len(l.due) >= maxCounted {
			uid = nobody
		}
	}
	due := l.due[uid]
	if due.Before(now) {
		due = now
	}
	if l.all.Before(now) {
		l.all = now
	}
	if due.After(now.Add((callBurst-1)*callEvery)) || l.all.After(now.Add((allBurst-1)*allEvery)) {
		return false
	}
	l.due[uid], l.all = due.Add(callEvery), l.all.Add(allEvery)
	return true
}

// limited returns a handler that passes requests to next. If a peer calls too often, it replies with status 429
// without reading the request.
func limited(next http.Handler) http.Handler {
	l := limiter{due: map[uint32]time.Time{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !l.admit(peerIn(r.Context()).counted, time.Now()) {
			w.Header().Set("Connection", "close")
			answer(w, nil, &Error{http.StatusTooManyRequests, tooManyText})
			return
		}
		next.ServeHTTP(w, r)
	})
}
