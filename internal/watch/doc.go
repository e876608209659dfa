// Package watch runs on slurmctld's host, so that nobody waits for an agent's next look at the queue. It sees that something has been
// submitted (job_submit.lua touches a file), reads the queue and the nodes once for all, and sends the nodes concerned a datagram that says
// "look now" and nothing else: an agent that gets one makes a pass as it would at its next poll, and believes nothing. Without a watcher
// everything works, later.
//
// # Whom it tells
//
// A job that could start but for its slices, and does not find them on offer on as many nodes as it needs, concerns the nodes that could
// run it and have that many slots and compute slices free. They are told one after the other, in an order that each job has of
// its own (rendezvous hashing of job and node), as many at once as the job lacks, the next a little later if what it wants is still
// not on offer. No node is told of a job twice: what changes on a node makes its own agent look.
//
// A node on which everything is closed, what is in use as well, is told once: slurmctld has read slurm.conf anew.
//
// # Failure cases
//
//	slurmctld does not answer      the look is repeated after a second; agents poll as ever
//	slurmctld is slow              a look is not begun before four times what the last one took has passed, two seconds at most
//	a datagram is lost             the agent's next poll; the job's next node a little later
//	somebody else sends datagrams  agents look at most once a second for long
//	the watcher ends               systemd restarts it; it knows nothing from before and tells of every waiting job once more
//	the file is removed            it is made again with the next look, at the latest after the interval
package watch
