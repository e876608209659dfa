package api

import (
	"net/http"
	"sync"
	"time"
)

// How often each user may call. Root, who is the prolog and the epilog, is not limited.
const (
	callBurst = 50                     // tasks of a job may all ask at the same time
	callEvery = 100 * time.Millisecond // one more call
	// users; further ones share a count, as a user namespace gives one user many ids
	maxCounted  = 1024
	tooManyText = "too many calls to the agent by this user; wait a second between calls"
)

// limiter counts calls by user.
type limiter struct {
	mu sync.Mutex
	// due is by user when the last call so far would have come at a pace of one in callEvery. Users whose time is
	// past are not kept.
	due map[uint32]time.Time
}

// admit reports whether a user may call now, and counts the call if so.
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

// limited serves what the peer's rate allows. A refused call is not read.
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
