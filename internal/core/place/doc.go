// Package place chooses the GPU and the start (the first unit) of one GPU instance. The package is pure: its
// functions take the state of the GPUs and return a choice.
//
// Related tasks are left to other packages: package gpu creates and destroys instances, package preempt decides
// which running jobs to stop, and package offer decides which jobs are offered placements.
//
// Files:
//
// State of the GPUs, and the interface of a policy:
//
//	gpu.go          GPU; Acquisition, the ways to acquire a placement; idle instances that are in the way
//	nodeslots.go    nodeSlots: the time at which all GPUs of a node are free, for jobs with several full GPUs
//	pool.go         Pool, Spot: groups of GPUs with the same layout; starts and ends placements; times of free units
//	place.go        Request, Situation, Policy, Choice; the policies by name (ByName), the default policy; costs, ties
//	recent.go       the recent requests: each profile's frequency, mean duration
//	weights.go      the frequency of profiles, converted to weights for a GPU model
//
// Policies:
//
//	layouts.go      first-fit, driver, best-fit, reach, mcc, mecc, fragaware, grmu: costs of the resulting layout
//	lifetime.go     lifetime, the default; the limit on durations (maxMeanDurations)
//
// Exact searches:
//
//	pack.go         Pack: spots for several instances that fit together
//
// # Why the start matters
//
// MIG instances cannot be moved. For example, a 1g.5gb on the first unit of an empty A100 blocks the only start of
// 4g.20gb while its job is running, even though seven units are free. A 1g.5gb on the seventh unit leaves enough space
// for a 4g.20gb and a 2g.10gb:
//
//	|1g.5gb|......|......|......|......|......|......|......|   21 of 78 maximal layouts within reach
//	|......|......|......|......|......|......|1g.5gb|......|   33 of 78
//
// The driver's own choice also fragments a GPU. On an H100, it placed seven 1g instances at starts 6, 4, 5, 0, 1, 2 and
// 3, in this order.
//
// # Acquisition cost
//
// Creating an instance takes 0.13 to 0.24 s, and destroying one takes 0.10 to 0.22 s (A30, A100). A placement can be
// acquired in four ways ([Acquisition]), listed here from cheapest to most expensive. The policies prefer the cheapest
// way that is possible on any GPU:
//
//	Reuse    an idle instance of the profile exists at the placement
//	Carve    the units are free
//	Reclaim  the idle instances that are in the way must be destroyed first ([GPU.InTheWay])
//	Switch   the MIG mode must be switched first: off for the full profile, on for all other profiles
//
// The [Policy] chooses among the candidates of the cheapest way, with two exceptions. fragaware compares load and
// fragmentation first. lifetime considers all candidates and uses the acquisition cost only to break ties. An
// acquisition takes at most half a second, whereas a later job might have to wait an hour if a placement is chosen only
// because it has an idle instance. In simulations in which instances remain after their jobs have ended (churn on 16
// A100s, FIFO, exact ends), preferring the cheapest way increased the waits by 29 to 55%.
//
// # Policies
//
// The following table lists the policies, their files and their inputs, ordered by the number of inputs:
//
//	first-fit, driver        layouts.go     the lowest GPU
//	best-fit                 layouts.go     free units
//	reach, mcc, fragaware    layouts.go     the resulting layout (package mig: Node)
//	mecc                     layouts.go     ... and the frequency of requests for each profile
//	grmu                     layouts.go     the basket of the GPU
//	lifetime                 lifetime.go    the expected ends of the neighbouring instances
//
// For the policies from first-fit to mecc in the table, all GPUs with the same layout have the same cost, so these
// policies choose the one with the lowest index. These policies therefore evaluate each layout in the pool only once
// ([Pool]).
//
// # Reach over several GPUs
//
// On one GPU, the reach policy chooses the start after which the most maximal layouts can still be reached. With
// several GPUs, it considers the entire cluster. A maximal layout of the cluster consists of one maximal layout for
// each GPU, so the cluster's reach is the product of the GPUs' reaches. This product is largest for the candidate whose
// own GPU retains the largest fraction of its reach (after/before). If only one maximal layout of a GPU can still be
// reached, an instance that is part of this layout costs nothing (1/1). The first instance on an empty A100 costs more
// than half of the reach (33 of 78 remain). The policy therefore packs instances onto few GPUs without a separate rule
// for packing, and compares different GPU models fairly. In the following example, it places one 1g.5gb:
//
//	gpu 0  |......|......|......|......|......|......|......|......|   78 -> 33
//	gpu 1  |4g.20gb====================|2g.10gb======|......|......|    2 -> 1
//	gpu 2  |7g.40gb================================================|    full
//
// The 1g.5gb is placed on GPU 1. If several candidates have the same ratio, the policy chooses the one after which the
// most placements still fit (CC), and then the one with the lowest GPU and start.
package place
