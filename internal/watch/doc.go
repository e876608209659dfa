// Package watch runs on slurmctld's host, so that nobody waits for an agent's next look at the queue. It sees that
// something has been submitted (job_submit.lua touches a file), reads the queue and the nodes once for all, and sends
// the nodes concerned a datagram that says "look now" and nothing else: an agent that gets one makes a pass as it would
// at its next poll, and believes nothing. Without a watcher everything works, later.
//
// # Whom it tells
//
// It makes the plan that the agents make (package plan), and tells those nodes that have not exactly on offer what the
// plan has them offer, or are to release a held job; and once a node of Caelum's that it cannot plan for and on which
// everything is closed: slurmctld has read slurm.conf anew. Who has been told is told again only when he shows
// something else or is to offer something else, so that nobody who sees it otherwise is woken without end.
//
// Agents send it the same datagrams when they have published, as that may change what others have to offer.
//
// # Failure cases
//
//	slurmctld does not answer      the look is repeated after a second; agents poll as ever
//	slurmctld is slow              a look is not begun before four times what the last one took has passed, two seconds at most
//	a datagram is lost             the agent's next poll
//	a user sends datagrams         they are refused: package wake
//	there is no key file           nothing is sent or accepted; agents poll
//	reactions change nothing       each waits twice as long as the one before, two seconds at most here and 15 at the agents
//	the watcher ends               systemd restarts it; it knows nothing from before and tells every node once more that is not as it should be
//	the file is removed            it is made again with the next look, at the latest after the interval
package watch
