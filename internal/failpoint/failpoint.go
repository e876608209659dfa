// Package failpoint simulates crashes and delays of the agent and the watcher in tests. It can kill a process at a
// named point between two lasting effects, or delay it between a read and a write. The package does nothing unless the
// CAELUM_FAILPOINT environment variable names a point, or CAELUM_FAILPOINT_PAUSE is set to a duration. With
// CAELUM_FAILPOINT=create.done, SIGKILL ends the process when it first reaches the create.done point. With
// CAELUM_FAILPOINT=create.done:3, the process is killed the third time it reaches the point.
//
// Files:
//
//	failpoint.go  the names of the failpoints (Points); Hit kills the process; Pause delays it
package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// The comment on each failpoint describes the agent's state at that point. Every lasting effect of the agent occurs
// between two failpoints.
const (
	CreateIntended  = "create.intended"   // the intent is durable; the driver has not been called
	Created         = "create.done"       // the instance exists; the ledger contains only the intent
	CreateSettled   = "create.settled"    // the ledger contains the instance; no job holds it
	DestroyIntended = "destroy.intended"  // the intent is durable; the instance still exists
	Destroyed       = "destroy.done"      // the instance is destroyed; the ledger still contains it
	DestroySettled  = "destroy.settled"   // the ledger no longer contains the instance
	RemakeIntended  = "remake.intended"   // the intent is durable; the compute instance still exists
	Remade          = "remake.done"       // the compute instance is new; the ledger still contains the old one
	RemakeSettled   = "remake.settled"    // the ledger contains the new compute instance; no job holds it
	GrantOpened     = "grant.opened"      // the device files belong to the user; the lease is not in the ledger
	GrantWritten    = "grant.written"     // the lease is in the ledger; the lease file does not exist
	GrantMapped     = "grant.mapped"      // the job map shows the lease; the lease file does not exist
	Granted         = "grant.done"        // the lease file is written; the agent has not replied to the prolog yet
	ReleaseClosed   = "release.closed"    // the device files belong to root; the ledger still contains the lease
	ReleaseUnlinked = "release.unlinked"  // the lease file is removed; the ledger still contains the lease
	Released        = "release.done"      // the lease is no longer in the ledger; the offers are not published yet
	ReleaseUnmapped = "release.unmapped"  // the job map no longer shows the lease; the offers are not published yet
	Lowered         = "publish.lowered"   // the offers that the plan withdraws are no longer published
	Raised          = "publish.raised"    // the plan is published
	RequeueTagged   = "giveback.marked"   // the job has its tag and is still running
	Requeued        = "giveback.requeued" // the job is back in the queue; the agent has not replied to its prolog yet
	HeldReleased    = "held.released"     // a held job is released; its tag still marks it as held

	PauseRecorded = "hook.recorded" // the ledger contains the pause; the destroy hook has not been called
	Paused        = "hook.paused"   // the destroy hook has paused the monitoring program; the instance exists
	Resumed       = "hook.resumed"  // the monitoring program is running again; the ledger still contains the pause

	GrowRequeued     = "grow.requeued"     // a failed job is back in the queue with its old tags
	GrowTagged       = "grow.tagged"       // the job has the tags of its larger profile and is not held
	GrowHeld         = "grow.held"         // the job is held; its epilog has no reply and its lease still exists
	GrowRetyped      = "grow.retyped"      // the request of a grown job names the larger profile
	ForeseenTagged   = "foreseen.tagged"   // a job has the tags of a larger profile, but is still running on its slice
	ForeseenRequeued = "foreseen.requeued" // the job is back in the queue; its epilog has not run

	LimitGrouped   = "limit.grouped"   // the job's cgroup exists without a limit; the lease is not in the ledger
	LimitSet       = "limit.set"       // the job's memory is limited; the lease is not in the ledger
	UnlimitCleared = "unlimit.cleared" // the memory limit is removed; the job's cgroup exists
	UnlimitRemoved = "unlimit.removed" // the job's cgroup is removed; the ledger still contains the lease

	PreemptTagged  = "preempt.tagged"  // a job is marked for preemption, or a preemptor has its tag
	PreemptStopped = "preempt.stopped" // a preempted job is stopped; others may still be running
)

// Points lists all failpoints of the agent.
var Points = []string{
	CreateIntended, Created, CreateSettled, DestroyIntended, Destroyed, DestroySettled,
	RemakeIntended, Remade, RemakeSettled,
	GrantOpened, GrantWritten, GrantMapped, Granted, ReleaseClosed, ReleaseUnlinked, Released, ReleaseUnmapped,
	Lowered, Raised, RequeueTagged, Requeued, HeldReleased,
	PauseRecorded, Paused, Resumed,
	GrowRequeued, GrowTagged, GrowHeld, GrowRetyped, ForeseenTagged, ForeseenRequeued,
	LimitGrouped, LimitSet, UnlimitCleared, UnlimitRemoved,
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

// Hit marks a failpoint. It kills the process once the failpoint named by CAELUM_FAILPOINT has been reached the
// configured number of times.
func Hit(name string) {
	if armed != name || armed == "" {
		return
	}
	if reached.Add(1) == nth {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // wait for SIGKILL
	}
}

// Pause marks a place between a read and a write that depends on it. It sleeps for the duration in
// CAELUM_FAILPOINT_PAUSE, for example 100ms.
func Pause() { time.Sleep(pause) }
