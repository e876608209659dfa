// Package place chooses the GPU and the start for one GPU instance. It is pure: it takes what stands on the GPUs and
// returns a choice. It never makes or destroys an instance (package gpu does), never decides whose turn it is, and
// never decides what goes on offer (package offer does).
//
// # Why the start matters
//
// MIG instances cannot be moved. A 1g.5gb put on the first unit of an empty A100 closes the only start of 4g.20gb for
// as long as its job runs, though seven units are free; put on the seventh it leaves room for a 4g.20gb and a 2g.10gb
// beside it:
//
//	|1g.5gb|......|......|......|......|......|......|......|   21 of 78 maximal layouts within reach
//	|......|......|......|......|......|......|1g.5gb|......|   33 of 78
//
// The driver's own choice is not an answer: asked for seven 1g instances, an H100 put them at 6, 4, 5, 0, 1, 2, 3.
//
// # Order of means
//
// Making an instance takes 0.13 to 0.24 s, destroying one 0.10 to 0.22 s (A30, A100), so the cheapest means comes
// first, on whichever GPU it is to be had ([Acquisition]):
//
//	Reuse    an idle instance of the profile stands there already
//	Carve    the units are free
//	Reclaim  idle instances are in the way and have to be destroyed first; only those ([GPU.InTheWay])
//
// Among the candidates of one means a [Policy] decides. fragaware compares load and fragmentation first. Policies that
// look at when things end (lifetime, scarcity, qla) weigh all candidates, and let the means decide between equal ones:
// half a second is nothing to the hour that a job may wait for a place that was filled because an idle instance stood
// there. Simulated with instances that stay (churn on 16 A100s, FIFO, exact ends), the cheapest means first costs
// lifetime 29 to 55% longer waits, and qla 24 to 128%.
//
// # Policies
//
// What they look at, from little to much:
//
//	first-fit, driver        the lowest GPU
//	best-fit                 free units
//	reach, mcc, fragaware    what the layout becomes (package mig: Node)
//	mecc, fgd                ... and how often each profile is asked for
//	grmu                     which basket the GPU is in
//	lifetime                 when what stands beside it ends
//	scarcity                 ... and how many slots of each profile will be free when
//	qla                      ... and who waits: it may hold a job that could start
//
// The first ones cost the same on every GPU with the same layout, so they are asked once for each layout that there is
// ([Pool]).
//
// # Plans
//
// What takes more than one instance is planned as a value ([Plan]): what to destroy and what to create, in order. To
// serve a request ([Pool.Serve]); to stop jobs that may be requeued, as the last resort ([Reconfigure]); to move
// instances where that leaves less fragmentation ([Pool.Depart], [Pool.Reject], [Pool.Merge]). Nothing here carries one
// out on a GPU. [Pack] and [Optimum] are exact, for questions of feasibility and for holding policies against the best
// there is.
//
// # Reach over several GPUs
//
// On one GPU the reach policy takes the start whose successor keeps the most maximal layouts reachable. Over several
// GPUs the thing that has a future is the cluster: a maximal layout of it is one maximal layout for each GPU, so its
// reach is the product of theirs. To keep the product largest, take the candidate that leaves its own GPU the largest
// share of its reach, after/before. An instance that completes a GPU whose future is settled anyway costs nothing
// (1/1), the first one on an empty A100 costs more than half (33/78): so the policy packs without being told to, and it
// compares unlike GPU models fairly. Placing one 1g.5gb:
//
//	gpu 0  |......|......|......|......|......|......|......|......|   78 -> 33
//	gpu 1  |4g.20gb====================|2g.10gb======|......|......|    2 -> 1
//	gpu 2  |7g.40gb================================================|    full
//
// goes to GPU 1. Ties go to the candidate that closes fewer placements (CC), then to the lowest GPU and start.
package place
