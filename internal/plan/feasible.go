package plan

import (
	"fmt"
	"math"
	"slices"

	"caelum/internal/offer"
	"caelum/internal/place"
)

// feasible reports whether a group of jobs that start together could start if all GPUs were empty. For each job, it
// searches only one node of each kind, regardless of the number of nodes that the job requests.
func (v *View) feasible(jobs []*offer.Job) bool {
	total, kinds := 0, 0
	bare, rooms := make([]*offer.Job, len(jobs)), make([]room, len(jobs))
	for k, j := range jobs {
		on := offer.Job{
			Wants:          j.Wants,
			Nodes:          j.Nodes,
			EligibleNodes:  j.EligibleNodes,
			OutsideCluster: j.OutsideCluster,
		}
		if len(j.Wants) > 0 {
			like := slices.IndexFunc(jobs, j.Alike)
			if rooms[k] = rooms[like]; like == k {
				if kinds++; kinds > maxKinds || len(j.Wants) > maxWants {
					return false
				}
				rooms[k] = v.roomFor(j.Wants)
			}
			on.EligibleNodes = slices.DeleteFunc(
				slices.Clone(j.EligibleNodes),
				func(n int) bool { return rooms[k].like(n) == nil },
			)
		}
		if !j.OutsideCluster {
			total += j.Nodes
		}
		if (len(on.EligibleNodes) < j.Nodes || total > len(v.Members)) && !j.OutsideCluster {
			return false
		}
		bare[k] = &on
	}
	return len(jobs) == 1 || v.empty.AssignNodes(bare, func(k, n int) []offer.Spot { return rooms[k].on(n) }) != nil
}

// maxWants and maxKinds bound the cost of a plan, because any user may submit any request. maxWants limits the number
// of entries for slices in one request. It exceeds the number of profiles, but is much smaller than Slurm's own limit.
// maxKinds limits the number of different kinds of components in a het job. Components are of the same kind if they
// request the same slices and have the same expected run time and time limit. One search covers all components of a
// kind.
const (
	maxWants = 64
	maxKinds = 16
)

// room contains spots for slices on empty GPUs, by the first member with the same GPUs.
type room struct {
	v     *View
	wants []offer.Want
	first map[int][]offer.Spot
}

func (v *View) roomFor(wants []offer.Want) room {
	if v.empty == nil {
		v.setEmpty()
	}
	key := fmt.Sprint(wants)
	if v.emptyRoom[key] == nil {
		v.emptyRoom[key] = map[int][]offer.Spot{}
	}
	return room{v, wants, v.emptyRoom[key]}
}

// like returns spots for the slices on the first member with the same GPUs as the given member, or nil if the slices do
// not fit.
func (r room) like(member int) []offer.Spot {
	like := r.v.firstLike[member]
	there, known := r.first[like]
	if !known {
		there, _ = r.v.empty.Find(&offer.Job{
			Wants:         r.wants,
			Nodes:         1,
			EligibleNodes: []int{like},
			RunTime:       math.Inf(1),
			TimeLimit:     math.Inf(1),
		}, nil)
		r.first[like] = there
	}
	return there
}

// on returns spots for the slices on a member as if the member's GPUs were empty, or nil if the slices do not fit.
func (r room) on(member int) []offer.Spot {
	like, there := r.v.firstLike[member], r.like(member)
	if member == like || there == nil {
		return there
	}
	spots := make([]offer.Spot, len(there))
	for i, s := range there {
		k := slices.Index(r.v.empty.Nodes[like], s.GPU)
		spots[i] = offer.Spot{GPU: r.v.empty.Nodes[member][k], Placement: s.Placement}
	}
	return spots
}

// setEmpty sets v.empty to a copy of the cluster in which all GPUs are empty.
func (v *View) setEmpty() {
	var bare [][]place.GPU
	first := map[string]int{}
	for n, gpus := range v.Nodes {
		var on []place.GPU
		key := ""
		for _, g := range gpus {
			g := v.Pool.GPU(g)
			on = append(on, place.GPU{Model: g.Model, Offerable: g.Offerable})
			key += fmt.Sprintf("%p/%x ", g.Model, g.Offerable)
		}
		if _, known := first[key]; !known {
			first[key] = n
		}
		bare, v.firstLike = append(bare, on), append(v.firstLike, first[key])
	}
	v.empty, v.emptyRoom = offer.NewCluster(place.Reach, bare...), map[string]map[int][]offer.Spot{}
}
