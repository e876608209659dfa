// Package watch is the watcher, which runs on slurmctld's host so that a submitted job need not wait for an agent's
// next poll. job_submit.lua writes to the trigger file at each submission. The watcher then reads the queue and the
// nodes once for the whole cluster, and notifies the nodes in the notification set. A notification carries no data: the
// agent makes a pass, as at its next poll. Without a watcher, agents notice submissions only when they poll. The
// watcher never writes to slurmctld.
//
// Files:
//
//	watch.go          Config; trigger file, reading of slurmctld, sending; pauses (retry 1 s, slowdown 4, maxPause 2 s)
//	notifications.go  the notification set: which nodes to notify, and when a node is notified again
//
// # The notification set
// The watcher computes the same plan as the agents (package plan). It notifies a node whose offers differ from the
// plan, and a node that must release a held job. It also notifies a node of Caelum for which it cannot plan and which
// offers no slices, as after slurmctld has read slurm.conf again. It notifies a node again only after the node's GRES,
// its Extra or its part of the plan has changed. A node whose agent computes a different plan is therefore not notified
// forever.
//
// Agents notify the watcher after they have published, because their offers can change the plan for other nodes.
//
// # Failure cases
//
//	slurmctld does not answer      the watcher tries again after a second; agents poll
//	slurmctld is slow              the watcher pauses for four times the duration of a reading, at most two seconds
//	a datagram is lost             the agent reads the queue at its next poll
//	a user sends datagrams         package wake refuses them
//	there is no key file           nothing is sent or accepted; agents poll
//	reactions change nothing       the pause between them doubles, up to two seconds here and 15 seconds at the agents
//	the watcher ends               systemd restarts it; it then notifies every node whose offers differ from the plan
//	the trigger file is removed    the watcher creates it at its next reading, at the latest after the interval
package watch
