// Package failpoint lets a test kill the agent at a named point between two lasting effects, as a crash would, or slow
// it down between a read and a write. The package does nothing unless the environment variable CAELUM_FAILPOINT names a
// point, or CAELUM_FAILPOINT_PAUSE has a duration. "create.done" kills the process
// with SIGKILL when it reaches the point for the first time, "create.done:3" when it does so for the third time.
package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// The failpoints. Each comment gives the state at that point. Every lasting effect of the agent lies between two of
// these points.
const (
	CreateIntended  = "create.intended"   // the intent is durable, the driver has not been called
	Created         = "create.done"       // the instance exists, the ledger has only the intent
	CreateSettled   = "create.settled"    // the ledger has the instance, no job holds it
	DestroyIntended = "destroy.intended"  // the intent is durable, the instance still exists
	Destroyed       = "destroy.done"      // the instance is gone, the ledger still has it
	DestroySettled  = "destroy.settled"   // the ledger no longer has the instance
	GrantOpened     = "grant.opened"      // the device files belong to the user, there is no lease
	GrantWritten    = "grant.written"     // the lease is in the ledger, there is no lease file
	Granted         = "grant.done"        // the lease file is written, the prolog has no answer yet
	ReleaseClosed   = "release.closed"    // the device files belong to root, the ledger still has the lease
	ReleaseUnlinked = "release.unlinked"  // the lease file is gone, the ledger still has the lease
	Released        = "release.done"      // the ledger has no lease, the offers are not published yet
	Lowered         = "publish.lowered"   // the offers that the plan withdraws are no longer published
	Raised          = "publish.raised"    // the plan is published
	RequeueTagged   = "giveback.marked"   // the job has its tag, and still runs
	Requeued        = "giveback.requeued" // the job is back in the queue, its prolog has no answer yet
	HeldReleased    = "held.released"     // a held job is released, its tag still says held
)

// Points lists all failpoints.
var Points = []string{
	CreateIntended, Created, CreateSettled, DestroyIntended, Destroyed, DestroySettled,
	GrantOpened, GrantWritten, Granted, ReleaseClosed, ReleaseUnlinked, Released,
	Lowered, Raised, RequeueTagged, Requeued, HeldReleased,
}

var (
	pause, _   = time.ParseDuration(os.Getenv("CAELUM_FAILPOINT_PAUSE"))
	armed, nth = parse(os.Getenv("CAELUM_FAILPOINT"))
	reached    atomic.Int64
)

func parse(text string) (name string, nth int64) {
	name, count, ok := strings.Cut(text, ":")
	if !ok {
		return name, 1
	}
	n, err := strconv.ParseInt(count, 10, 32)
	if err != nil || n < 1 {
		n = 1
	}
	return name, n
}

// Hit marks the place of a failpoint. It kills the process if CAELUM_FAILPOINT names this point and its count is
// reached.
func Hit(name string) {
	if armed != name || armed == "" {
		return
	}
	if reached.Add(1) == nth {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the process must not go on before the signal arrives
	}
}

// Pause marks a place between a read and the write that relies on it. It sleeps for CAELUM_FAILPOINT_PAUSE (100ms).
func Pause() { time.Sleep(pause) }
