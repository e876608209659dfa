package plan

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/core/offer"
	"caelum/internal/core/place"
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
	spots := func(k, n int) []offer.Spot { return rooms[k].on(n) }
	return len(jobs) == 1 || v.planner.rooms.empty.AssignNodes(bare, spots) != nil
}

// maxWants and maxKinds bound the cost of a plan, because any user can submit any request. maxWants limits the number
// of entries for slices in one request: it is larger than the number of profiles, but much smaller than Slurm's own
// limit. maxKinds is the maximum number of kinds of components in a het job. If components request the same slices and
// have the same expected run time and time limit, they are of the same kind and share one search.
const (
	maxWants = 64
	maxKinds = 16
)

// rooms caches the results of feasible's searches on empty GPUs.
type rooms struct {
	empty     *offer.Cluster                  // the cluster with empty GPUs
	firstLike []int                           // for each member, the first member with the same GPUs
	spots     map[string]map[int][]offer.Spot // spots for the slices on empty GPUs, by request and first member
}

// maxRooms limits the number of requests in rooms, because any user can submit any request.
const maxRooms = 1000

// room maps the first member with the same GPUs to spots for the slices on empty GPUs.
type room struct {
	*rooms
	wants []offer.Want
	first map[int][]offer.Spot
}

func (v *View) roomFor(wants []offer.Want) room {
	r := v.planner.rooms
	if r.empty == nil {
		r.setEmpty(v.Cluster)
	}
	key := fmt.Sprint(wants)
	if r.spots[key] == nil {
		if len(r.spots) == maxRooms {
			clear(r.spots)
		}
		r.spots[key] = map[int][]offer.Spot{}
	}
	return room{r, wants, r.spots[key]}
}

// like returns spots for the slices on the first member with the same GPUs as the given member, or nil if the slices do
// not fit.
func (r room) like(member int) []offer.Spot {
	like := r.firstLike[member]
	there, known := r.first[like]
	if !known {
		there, _ = r.empty.Find(&offer.Job{
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
	like, there := r.firstLike[member], r.like(member)
	if member == like || there == nil {
		return there
	}
	spots := make([]offer.Spot, len(there))
	for i, s := range there {
		k := slices.Index(r.empty.Nodes[like], s.GPU)
		spots[i] = offer.Spot{GPU: r.empty.Nodes[member][k], Placement: s.Placement}
	}
	return spots
}

// setEmpty sets r.empty to a copy of the cluster in which all GPUs are empty.
func (r *rooms) setEmpty(c *offer.Cluster) {
	var bare [][]place.GPU
	first := map[string]int{}
	models := map[*mig.Model]uint64{nil: 0}
	var key []byte
	for n, gpus := range c.Nodes {
		var on []place.GPU
		key = key[:0]
		for _, g := range gpus {
			g := c.Pool.GPU(g)
			on = append(on, place.GPU{Model: g.Model, Offerable: g.Offerable})
			if _, known := models[g.Model]; !known {
				models[g.Model] = uint64(len(models))
			}
			key = binary.LittleEndian.AppendUint64(key, models[g.Model])
			key = binary.LittleEndian.AppendUint64(key, uint64(g.Offerable))
		}
		if _, known := first[string(key)]; !known {
			first[string(key)] = n
		}
		bare, r.firstLike = append(bare, on), append(r.firstLike, first[string(key)])
	}
	r.empty, r.spots = offer.NewCluster(place.Reach, bare...), map[string]map[int][]offer.Spot{}
}
