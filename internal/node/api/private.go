package api

import "slices"

// Visibility determines which data a peer may see about the jobs on a node. The zero value is the lowest level.
type Visibility int

// These constants are the levels of visibility, from the lowest to the highest.
const (
	SeesOwn  Visibility = iota // the user's own jobs; the jobs on other slices are hidden
	SeesJobs                   // also the data that squeue shows about other users' jobs
	SeesAll                    // all data
)

// Private is a Handler that determines which data peers may see. If a Handler does not implement Private, only root
// sees other users' jobs.
type Private interface {
	// VisibleTo determines which data about the jobs on the node the user may see.
	VisibleTo(uid uint32) Visibility
}

func visibility(h Handler, uid uint32) Visibility {
	if p, ok := h.(Private); ok {
		return p.VisibleTo(uid)
	}
	if uid == 0 {
		return SeesAll
	}
	return SeesOwn
}

// shownTo returns the part of a lease that a peer may see, or false if the peer is not allowed to see any of it. As
// with sstat, only the job's owner and root may see its usage.
func (l Lease) shownTo(uid uint32, visible Visibility) (Lease, bool) {
	switch {
	case visible == SeesAll, l.UID == uid && uid != nobody:
		return l, true
	case visible != SeesJobs:
		return Lease{}, false
	}
	l.Key, l.Fingerprint, l.Error, l.Xids = "", "", "", ""
	l.Slices = slices.Clone(l.Slices)
	for i := range l.Slices {
		l.Slices[i].Use = nil
	}
	return l, true
}

// hiddenError replaces an error message that may contain data about other users' jobs.
const hiddenError = "the agent cannot publish its offers; ask an administrator to run `caelum status` as root"

// shownTo returns the part of a node's status that a peer may see.
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
			in.Note = "" // the note may describe other users' processes
			if visible != SeesJobs && !own[in.Job] {
				in.Job = 0
			}
		}
		g.Xids = slices.Clone(g.Xids)
		for k := range g.Xids {
			if x := &g.Xids[k]; visible != SeesJobs && !own[x.Job] {
				x.Job = 0
			}
		}
	}
	return s
}
