// Package watch implements the watcher, which runs on slurmctld's host as `caelumd watch`. With a watcher, a submitted
// job need not wait for the next poll of an agent. At each submission, job_submit.lua writes to the trigger file (by
// default /run/caelum-watch/poke). The watcher then reads the queue and the nodes once for the whole cluster, and
// notifies the nodes in the notification set with datagrams (package notify). After a notification, the agent makes a
// pass, as at its next poll. Without a watcher, agents detect submissions only when they poll. The watcher opens no
// socket except its UDP port for notifications of agents, and never writes to slurmctld.
//
// Files:
//
//	watch.go          Config; trigger file, reading of slurmctld, sending; pauses (retry, slowdown, maxPause)
//	notifications.go  the notification set: the nodes to notify; the conditions for a further notification
//
// # The notification set
//
// The watcher makes the same plan as the agents (package plan). The notification set contains the following nodes:
//
//   - nodes whose offers differ from the plan
//   - nodes that must release a held job
//   - nodes with gres/mig that the plan cannot include and that offer no slices, for example after slurmctld has read
//     slurm.conf again
//
// The watcher notifies a node again only after the node's GRES, the node's Extra or the reason for the notification has
// changed. The watcher therefore stops notifying an agent that always makes a different plan.
//
// Agents notify the watcher after they have published, because their offers can change the plan for other nodes.
//
// # Failure cases
//
//	slurmctld does not answer      the watcher tries again after a second; agents poll
//	slurmctld is slow              the watcher pauses for four times the duration of a reading, at most two seconds
//	a datagram is lost             the agent reads the queue at its next poll
//	a user sends datagrams         package notify rejects the datagrams
//	there is no key file           the watcher sends and accepts no datagrams; agents poll
//	reactions change nothing       the pause doubles after each reaction, up to 2 s in the watcher and 15 s in agents
//	the watcher ends               systemd restarts the watcher, which notifies the nodes in the notification set
//	the trigger file is removed    the watcher creates the file at its next reading, at the latest after the interval
package watch
