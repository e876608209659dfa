// Package failpoint lets a test stop the agent at a named point between two effects, as a crash would. It does nothing
// unless the environment variable CAELUM_FAILPOINT names a point: "create.done" kills the process with SIGKILL when the
// point is reached, "create.done:3" the third time.
package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// The points, by what has just become true when each is reached. Every effect of the agent that lasts lies between two
// of them.
const (
	CreateIntended  = "create.intended"   // the intent is durable, the driver has not been called
	Created         = "create.done"       // the instance exists, the ledger has only the intent
	CreateSettled   = "create.settled"    // the ledger has the instance, nobody holds it
	DestroyIntended = "destroy.intended"  // the intent is durable, the instance still exists
	Destroyed       = "destroy.done"      // the instance is gone, the ledger still has it
	DestroySettled  = "destroy.settled"   // the ledger has forgotten it
	GrantOpened     = "grant.opened"      // the device files are the user's, there is no lease
	GrantWritten    = "grant.written"     // the lease is in the ledger, there is no lease file
	Granted         = "grant.done"        // the lease file is written, the prolog has no answer
	ReleaseClosed   = "release.closed"    // the device files are root's, the lease stands
	ReleaseUnlinked = "release.unlinked"  // the lease file is gone, the lease stands
	Released        = "release.done"      // the ledger has no lease, the offers are not published
	Lowered         = "publish.lowered"   // what the plan withdraws is off offer
	Raised          = "publish.raised"    // the plan is published
	RequeueTagged   = "giveback.marked"   // the job bears its mark, and still runs
	Requeued        = "giveback.requeued" // the job is back in the queue, its prolog has no answer
	HeldReleased    = "held.released"     // a held job is released, its mark still says held
)

// Points lists them all.
var Points = []string{
	CreateIntended, Created, CreateSettled, DestroyIntended, Destroyed, DestroySettled, GrantOpened, GrantWritten, Granted,
	ReleaseClosed, ReleaseUnlinked, Released, Lowered, Raised, RequeueTagged, Requeued, HeldReleased,
}

var (
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

// Hit is where a point lies.
func Hit(name string) {
	if armed != name || armed == "" {
		return
	}
	if reached.Add(1) == nth {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	}
}
