package api

import "slices"

// Sight is how much of the jobs on a node a peer may see. The zero value is the least.
type Visibility int

// The sights.
const (
	SeesOwn  Visibility = iota // its own jobs; others' slices are in use, by nothing that is named
	SeesJobs                   // of other users' jobs also what squeue shows
	SeesAll
)

// Private is a Handler that knows how much peers may see. Without it only root sees other users' jobs.
type Private interface {
	Sight(uid uint32) Visibility
}

func visibility(h Handler, uid uint32) Visibility {
	if p, ok := h.(Private); ok {
		return p.Sight(uid)
	}
	if uid == 0 {
		return SeesAll
	}
	return SeesOwn
}

// shownTo returns what a peer may see of a lease; false: nothing. What a job has in use only its owner and root are
// told, as by sstat.
func (l Lease) shownTo(uid uint32, visible Visibility) (Lease, bool) {
	switch {
	case visible == SeesAll, l.UID == uid && uid != nobody:
		return l, true
	case visible != SeesJobs:
		return Lease{}, false
	}
	l.Key, l.Fingerprint, l.Error = "", "", ""
	l.Slices = slices.Clone(l.Slices)
	for i := range l.Slices {
		l.Slices[i].Use = nil
	}
	return l, true
}

// hiddenError stands for a text that may name other users' jobs.
const hiddenError = "the agent cannot publish its offers; tell the admin to run `caelum status` as root"

// shownTo returns what a peer may see of a node.
func (s Status) shownTo(uid uint32, visible Visibility) Status {
	if visible == SeesAll {
		return s
	}
	own := map[uint32]bool{}
	var leases []Lease
	for _, l := range s.Leases {
		own[l.Job] = l.UID == uid && uid != nobody
		if l, ok := l.shownTo(uid, visible); ok {
			leases = append(leases, l)
		}
	}
	s.Leases = leases
	if s.PublishError != "" {
		s.PublishError = hiddenError
	}
	if visible != SeesJobs {
		s.Reserved = nil
	}
	s.GPUs = slices.Clone(s.GPUs)
	for i := range s.GPUs {
		g := &s.GPUs[i]
		g.Instances = slices.Clone(g.Instances)
		for k := range g.Instances {
			in := &g.Instances[k]
			in.Note = "" // processes of any user
			if visible != SeesJobs && !own[in.Job] {
				in.Job = 0
			}
		}
	}
	return s
}
