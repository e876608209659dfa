package publish

import (
	"math/rand/v2"
	"time"
)

// Backoff computes the pauses before a failed operation is repeated. Each pause is twice as long as the previous one,
// so that the agents of a large cluster do not overload slurmctld while their passes fail, for example after slurmctld
// has restarted.
type Backoff struct {
	First, Most time.Duration // the first pause and the longest one, without the random part
	next        time.Duration // 0 after a success
}

// Pause returns the pause after an attempt with the given result, or 0 if the attempt succeeded. The pause contains a
// random part of up to a quarter, because many agents often fail at the same time.
func (b *Backoff) Pause(err error) time.Duration {
	if err == nil {
		b.next = 0
		return 0
	}
	now := min(max(b.next, b.First), b.Most)
	b.next = 2 * now
	return now + rand.N(now/4+1)
}
