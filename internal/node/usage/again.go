package usage

import (
	"context"
	"time"
)

// When slurmctld starts, it reports the end of each finished job in its state file to slurmdbd again, because slurmdbd
// may have missed it. slurmdbd then replaces AdminComment with slurmctld's value, which does not contain summaries
// (_load_job_state in job_mgr.c, 22.05.8 to 26.05.3). The recorder therefore checks periodically whether slurmctld has
// restarted, and returns the affected runs to the outbox. If a summary still exists, the next attempt only reads it.
const (
	// clockSlack is added to both ends of the interval of affected runs, because the clocks of slurmctld and of the
	// node may differ. `caelum doctor` warns about a difference of 30 s.
	clockSlack = time.Minute
	// settles is the pause before the next attempt. slurmctld sends its reports within seconds of starting.
	settles = 30 * time.Second
	// usualMemory is the default value of MinJobAge. It is used until slurmctld has answered.
	usualMemory = 5 * time.Minute
	// longestMemory limits MinJobAge. With MinJobAge=0, slurmctld never removes a finished job.
	longestMemory = 24 * time.Hour
)

// SlurmctldTimes are the times of slurmctld that determine which runs it may have forgotten.
type SlurmctldTimes struct {
	Started time.Time     // when slurmctld started
	Memory  time.Duration // how long slurmctld keeps a finished job (MinJobAge); 0 if it never removes jobs
}

// restarts is the recorder's state for detecting restarts of slurmctld. It is used only by the recorder's goroutine.
type restarts struct {
	started  time.Time     // the last known start of slurmctld
	window   time.Duration // the time after the end of a run during which a restart affects the run's record
	recorded time.Time     // the last time at which a run left the outbox
	look     time.Time     // the time of the next request; zero if no recorded run can be affected
}

// afterRecorded schedules a request for the time by which slurmctld will have forgotten the recorded run.
func (r *restarts) afterRecorded(now time.Time) {
	r.recorded = now
	if r.look.IsZero() {
		r.look = now.Add(r.window)
	}
}

// recordAgain asks slurmctld for its start time if this request is due. If slurmctld has restarted, the affected runs
// return to the outbox. When the agent has just started, recordAgain assumes a restart.
func (m *Monitor) recordAgain(ctx context.Context) {
	r, now := &m.restarts, m.Now()
	if m.SlurmctldTimes == nil || m.Field == "" || r.look.IsZero() || now.Before(r.look) {
		return
	}
	r.look = now.Add(time.Minute) // the next request if this one fails
	c, err := m.SlurmctldTimes(ctx)
	if err != nil || c.Started.IsZero() {
		return
	}
	if c.Memory <= 0 || c.Memory > longestMemory {
		c.Memory = longestMemory
	}
	r.window = c.Memory + clockSlack
	if !c.Started.Equal(r.started) {
		err := m.repo.Again(m.Node, c.Started.Add(-r.window), c.Started.Add(clockSlack), now.Add(settles))
		if m.reportRepository(err); err != nil {
			return
		}
		r.started = c.Started
	}
	if r.look = now.Add(r.window); r.recorded.Add(r.window).Before(now) {
		r.look = time.Time{}
	}
}
