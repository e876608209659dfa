package part

import (
	"fmt"
	"time"
)

// A planner writes a heartbeat after each round in which it has queried slurmctld, made the plan and written all parts
// that differed from the plan. The heartbeat consists of the planner's id and a number that changes with each
// heartbeat, for example "caelum-beat=9f1c22d07a4be610@17". Receivers check only whether it has changed, so the hosts'
// clocks do not matter.

const (
	// Every is the time between heartbeats.
	Every = 5 * time.Second
	// Expiry is the age of a heartbeat at which agents stop following their parts and another planner can take over. It
	// allows for two late or failed rounds.
	Expiry = 3 * Every
)

// BeatIn returns the heartbeat in a node's Comment, or an empty string.
func BeatIn(comment string) string { return entry(comment, beatPrefix) }

// WithBeat returns a node's Comment with the n-th heartbeat of the planner with this id.
func WithBeat(comment, id string, n int) string {
	return withEntry(comment, beatPrefix, fmt.Sprintf("%s@%d", id, n))
}

// HeartbeatAge measures the age of a heartbeat since it was first read.
type HeartbeatAge struct {
	text  string
	since time.Time
}

// Read records the heartbeat that was read at the given time.
func (a *HeartbeatAge) Read(text string, at time.Time) {
	if text != a.text {
		*a = HeartbeatAge{text, at}
	}
}

// Fresh reports whether the heartbeat was younger than limit at the given time.
func (a *HeartbeatAge) Fresh(at time.Time, limit time.Duration) bool {
	return a.text != "" && at.Sub(a.since) < limit
}
