package api

import (
	"net/http"
	"sync"
	"time"
)

// These constants limit the rate at which each user may call the agent. Root is not limited,
// because the prolog and the epilog run as root.
const (
	// callBurst limits the calls that a user can make without a pause. It is large enough for
	// all tasks of a job to call at the same time.
	callBurst = 50
	// callEvery is the interval after which a user who has used up the burst may make one more
	// call.
	callEvery = 100 * time.Millisecond
	// maxCounted limits the number of users that are counted separately. All further users share one count, because a
	// user namespace gives one user many ids.
	maxCounted  = 1024
	tooManyText = "too many calls to the agent by this user; wait a second between calls"
)

// limiter counts the calls of each user.
type limiter struct {
	mu sync.Mutex
	// due maps each user to the time at which the user's next call would be due at a rate of
	// one call per callEvery. No entry is needed for a user whose time has passed.
	due map[uint32]time.Time
}

// admit reports whether a user may call at the time now. It counts the call if it admits it.
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
	if due.After(now.Add((callBurst - 1) * callEvery)) {
		return false
	}
	l.due[uid] = due.Add(callEvery)
	return true
}

// limited returns a handler that replies with status 429 to a peer that calls too often, without reading the request.
// It passes all other requests to next.
func limited(next http.Handler) http.Handler {
	l := limiter{due: map[uint32]time.Time{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !l.admit(Peer(r.Context()), time.Now()) {
			w.Header().Set("Connection", "close")
			answer(w, nil, &Error{http.StatusTooManyRequests, tooManyText})
			return
		}
		next.ServeHTTP(w, r)
	})
}
