// Package watch implements the watcher, which runs on slurmctld's host as `caelumd watch`. With a watcher, a submitted
// job need not wait for the next poll of an agent. job_submit.lua writes to the trigger file at each submission, by
// default /run/caelum-watch/poke. The watcher then reads the queue and the nodes once for the whole cluster, and
// notifies the nodes in the notification set with datagrams (package wake). A notification carries no data: the agent
// makes a pass, as at its next poll. Without a watcher, agents detect submissions only when they poll. The watcher
// opens no socket except its UDP port for notifications of agents, and never writes to slurmctld.
//
// Files:
//
//	watch.go          Config; trigger file, reading of slurmctld, sending; pauses (retry, slowdown, maxPause)
//	notifications.go  the notification set: which nodes to notify, and when to notify a node again
//
// # The notification set
//
// The watcher makes the same plan as the agents (package plan). It notifies nodes whose offers differ from the plan,
// and nodes that must release a held job. It also notifies nodes of Caelum that it cannot include in the plan and that
// offer no slices, for example after slurmctld has read slurm.conf again. It notifies a node again only after the
// node's GRES, its Extra or its part of the plan has changed. The notifications therefore stop even if an
// agent always makes a different plan.
//
// Agents notify the watcher after they have published, because their offers can change the plan for other nodes.
//
// # Failure cases
//
//	slurmctld does not answer      the watcher tries again after a second; agents poll
//	slurmctld is slow              the watcher pauses for four times the duration of a reading, at most two seconds
//	a datagram is lost             the agent reads the queue at its next poll
//	a user sends datagrams         package wake rejects them
//	there is no key file           no datagrams are sent or accepted; agents poll
//	reactions change nothing       the pause between them doubles, up to two seconds for the watcher and 15 for agents
//	the watcher ends               systemd restarts it; it then notifies every node whose offers differ from the plan
//	the trigger file is removed    the watcher creates it at its next reading, at the latest after the interval
package watch
