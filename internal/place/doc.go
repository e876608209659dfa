// Package place chooses the GPU and the start (first unit) for one GPU instance. The package is pure: its functions
// receive the state of the GPUs and return a choice. The package never creates or destroys an instance (package gpu
// does), never stops or moves a job (package reconfigure plans that), never decides which job is next, and never
// decides which placements are offered (package offer does).
//
// Files:
//
// State of the GPUs, and the interface of a policy:
//
//	gpu.go          GPU; the ways to get a placement: reuse, carve, reclaim (Acquisition); instances in the way
//	pool.go         Pool, Spot: groups of GPUs with the same layout; start and end of a placement, when a slot is free
//	place.go        Request, Situation, Policy, Choice; names of the policies (ByName) and the default; cost and ties
//	inputs.go       the parts of a situation that each policy uses (InputsOf)
//	recent.go       the recent requests: frequency of profiles and mean duration (recentKept 200)
//	weights.go      the frequency of profiles as weights on a GPU model
//
// Policies:
//
//	layouts.go      first-fit, driver, best-fit, reach, mcc, mecc, fgd, fragaware, grmu: costs by resulting layout
//	lifetime.go     lifetime, the default; how much of a duration counts (maxMeanDurations 2)
//	scarcity.go     scarcity: the price of time in a slot, and its fitted constants
//	qla.go          qla: its candidates for the head, may hold the head; constants (qlaAhead, qlaHold)
//	rollout.go      the simulation of the jobs behind the head, for qla
//
// Exact searches:
//
//	pack.go         Pack: spots for several instances that fit together
//
// # Why the start matters
//
// MIG instances cannot be moved. A 1g.5gb on the first unit of an empty A100 blocks the only start of 4g.20gb as long
// as its job runs, although seven units are free. A 1g.5gb on the seventh unit leaves enough space for a 4g.20gb and a
// 2g.10gb:
//
//	|1g.5gb|......|......|......|......|......|......|......|   21 of 78 maximal layouts within reach
//	|......|......|......|......|......|......|1g.5gb|......|   33 of 78
//
// The driver's own choice is no better. On an H100, the driver put seven 1g instances at the starts
// 6, 4, 5, 0, 1, 2, 3.
//
// # Acquisition cost
//
// Creating an instance takes 0.13 to 0.24 s, destroying one 0.10 to 0.22 s (A30, A100). There are three ways to get a
// placement, from cheap to expensive ([Acquisition]). The policies prefer the cheapest way that any GPU allows:
//
//	Reuse    there is an idle instance of the profile
//	Carve    the units are free
//	Reclaim  idle instances are in the way and have to be destroyed first; no others are destroyed ([GPU.InTheWay])
//
// Among the candidates of the cheapest way, the [Policy] decides. The exceptions are fragaware, which compares load and
// fragmentation first, and the policies that use the expected ends (lifetime, scarcity, qla). The latter consider all
// candidates, and use the acquisition cost as a tie-break. Half a second is little compared with the hour that a later
// job may have to wait if a placement is used only because it holds an idle instance. In simulations in which instances
// remain after their jobs (churn on 16 A100s, FIFO, exact ends), the waits are 29 to 55% longer with lifetime, and 24
// to 128% longer with qla, if the cheapest way is taken first.
//
// # Policies
//
// The policies, their files and their inputs, ordered by the number of inputs:
//
//	first-fit, driver        layouts.go     the lowest GPU
//	best-fit                 layouts.go     free units
//	reach, mcc, fragaware    layouts.go     the resulting layout (package mig: Node)
//	mecc, fgd                layouts.go     ... and how often each profile is requested
//	grmu                     layouts.go     the basket of the GPU
//	lifetime                 lifetime.go    when the neighbouring instances end
//	scarcity                 scarcity.go    ... and how many slots of each profile will be free at each time
//	qla                      qla.go         ... and the waiting jobs; it may hold a job that could start
//
// For the policies up to fgd in this list, all GPUs with the same layout have the same cost, and
// the policy chooses the GPU with the lowest index. These policies therefore evaluate each layout
// in the pool once ([Pool]).
//
// # Reach over several GPUs
//
// On one GPU, the reach policy takes the start after which the largest number of maximal layouts can still be reached.
// With several GPUs it considers the whole cluster: a maximal layout of the cluster is one maximal layout for each GPU,
// so its reach is the product of the reaches of the GPUs. The product remains largest with the candidate whose own GPU
// keeps the largest share of its reach (after/before). If only one maximal layout of a GPU can still be reached, an
// instance of this layout costs nothing (1/1). The first instance on an empty A100 costs more than half of the reach
// (33/78 remain). The policy therefore packs instances without a separate rule for packing, and compares different GPU
// models fairly. An example with one 1g.5gb:
//
//	gpu 0  |......|......|......|......|......|......|......|......|   78 -> 33
//	gpu 1  |4g.20gb====================|2g.10gb======|......|......|    2 -> 1
//	gpu 2  |7g.40gb================================================|    full
//
// The policy places the 1g.5gb on GPU 1. Ties go to the candidate that blocks fewer placements (CC), then to the lowest
// GPU and start.
package place
