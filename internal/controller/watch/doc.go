// Package watch implements the watcher, which runs on slurmctld's host as `caelum-watch`. With a watcher, a submitted
// job does not need to wait for an agent's next poll. At each submission, job_submit.lua writes to the trigger file (by
// default /run/caelum-watch/poke). The watcher then reads the queue and the nodes once for the whole cluster and sends
// datagrams to notify the nodes in the notification set (package notify). A notified agent makes a pass immediately
// instead of at its next poll. Without a watcher, agents detect submissions only when they poll. The watcher's only
// socket is the UDP port for notifications from agents. Unless planner is false, it writes each node's part of the plan
// and a heartbeat into the nodes' Comments (docs/internals/watcher.md, "A plan from the watcher"), and it publishes the
// offers of nodes that are powered down. If Slurm's settings or moves_per_day allow it, it also stops jobs and records
// this in the jobs' AdminComments.
//
// Files:
//
//	watch.go          Config; trigger file; queries slurmctld; sends notifications; pauses (retry, slowdown, maxPause)
//	planner.go        unless planner is false: writes the parts of the plan and the heartbeat into the nodes' Comments
//	powereddown.go    unless planner is false: publishes the offers of nodes that are powered down
//	deferred.go       the parts that need not be written before the next heartbeat, because no job waits for them
//	preempt.go        unless preempt is false: stops jobs for a waiting job that needs another profile (package preempt)
//	move.go           with `moves_per_day`: limits the number of moves, and calls the site's move_command
//	catalogue.go      sets catalogue nodes back to FUTURE after `scontrol update nodename=ALL state=resume`
//	deadlines.go      logs the jobs that cannot meet their deadlines
//	notifications.go  the notification set: the nodes to notify, and when to notify a node again
//
// # The notification set
//
// The watcher makes the same plan as the agents (package plan). The notification set consists of the following nodes:
//
//   - nodes whose offers differ from the plan
//   - nodes that must release a held job
//   - nodes with gres/mig that the plan cannot include and that offer no slices, for example after slurmctld has
//     re-read slurm.conf
//
// The watcher notifies a node again only after its GRES, its Extra or the reason for the notification has changed. It
// therefore stops notifying an agent that always makes a different plan.
//
// After publishing, agents notify the watcher, because their offers can change the plan for other nodes.
//
// # Failure cases
//
//	slurmctld does not answer      the watcher retries after a second; agents poll
//	slurmctld is slow              the watcher pauses for four times as long as a reading takes, at most 2 s
//	a datagram is lost             the agent reads the queue at its next poll
//	a user sends datagrams         package notify rejects them
//	neither munge nor a key file   the watcher neither sends nor accepts datagrams; agents poll
//	reactions change nothing       the pause doubles after each reaction, up to 2 s in the watcher and 15 s in agents
//	the watcher ends               systemd restarts it, and it notifies the nodes in the notification set
//	the trigger file is removed    the watcher recreates it at its next reading, after the interval at the latest
package watch
