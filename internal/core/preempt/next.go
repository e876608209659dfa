package preempt

import (
	"slices"
	"time"

	"caelum/internal/core/eligible"
	"caelum/internal/core/offer"
	"caelum/internal/core/plan"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// Action is the action that a step performs on a job.
type Action string

const (
	Tag  Action = "tag"  // write Comment to admin_comment
	Warn Action = "warn" // send the signals that begin the grace time, and then write Comment
	Stop Action = "stop" // end the run in the way given by Mode
)

// Step is one action on one job.
type Step struct {
	Do      Action
	Job     slurm.Job
	Comment string // the new admin_comment, for Tag and Warn
	Mode    Mode   // for Stop
	For     uint32 // the id of the preemptor
	Move    bool   // for Stop: the run is moved, so it is only ever requeued; for Tag: the step begins a move
}

// Settings contains the watcher's settings.
type Settings struct {
	Preempt    bool     // whether jobs are preempted by Slurm's rules
	Moves      bool     // whether running jobs are moved
	BeginMove  bool     // whether a move may begin now
	Partitions []string // the partitions whose jobs may be moved without the permission of their users
}

// Next returns the next steps of the current preemption or, if there is none, the steps that begin one. The caller must
// carry out the steps in this order and stop at the first error. v is the view of the snapshot, and made is the plan of
// this view.
//
//	none --begin--> marked --offers withdrawn--> warned, with GraceTime --grace time over--> stopped
//	marked, warned --the preemptor starts, ends, is held, or cannot start; the room is lost; KeepRoom is over--> none
//
// A move has the same states, without a grace time.
func Next(r Rules, c Settings, s plan.Snapshot, v *plan.View, made offer.Plan) (steps []Step) {
	k := preemptor(s, v)
	var mine []*slurm.Job
	for i := range s.Queue.All {
		j := &s.Queue.All[i]
		switch p, ok := tags.PreemptedBy(*j); {
		case !ok || !j.Holds():
		case k >= 0 && v.Waiting[k].ID == p.Job && c.enabled(p.Move):
			mine = append(mine, j)
		default:
			steps = append(steps, drop(*j))
		}
	}
	switch {
	case k < 0 && steps == nil:
		if c.Preempt && r.Enabled() {
			steps = begin(r, s, v, made)
		}
		if steps == nil && c.Moves && c.BeginMove {
			steps = beginMove(r, c, s, v, made)
		}
	case len(mine) > 0:
		steps = append(steps, proceed(r, c, s, v, made, k, mine)...)
	}
	return steps
}

// enabled reports whether the watcher's settings permit moves or, if move is false, preemption.
func (c Settings) enabled(move bool) bool {
	if move {
		return c.Moves
	}
	return c.Preempt
}

// drop returns the step that ends the preemption of a job that is still running.
func drop(j slurm.Job) Step {
	p, _ := tags.PreemptedBy(j)
	return Step{Do: Tag, Job: j, Comment: tags.WithoutPreemption(j), For: p.Job}
}

// preemptor returns the index of the waiting job for which the watcher is stopping jobs, or -1.
func preemptor(s plan.Snapshot, v *plan.View) int {
	return slices.IndexFunc(v.Waiting, func(w *slurm.Waiting) bool {
		return s.Preempts(*w.Job) && eligible.WaitsForNodes(*w)
	})
}

// proceed returns the next steps for the jobs that are being stopped for the k-th waiting job. All of them are stopped
// in the same round, after all of their grace times have ended, so that no job is stopped unnecessarily if the
// preemptor is cancelled.
func proceed(
	r Rules, c Settings, s plan.Snapshot, v *plan.View, made offer.Plan, k int, mine []*slurm.Job,
) (steps []Step) {
	w := v.Waiting[k]
	var stop []uint32
	if made.Spots[k] == nil {
		var ok bool
		begun := anyStopped(s, w.ID)
		lost := !begun && !anyWarned(mine) && outranked(r, s, v, made, k)
		if !lost {
			stop, ok = stillChosen(r, c, s, v, made, k, mine)
		}
		switch {
		case lost: // nothing has happened to the marked jobs, so the preemptor may try again
			steps = append(steps, Step{Do: Tag, Job: *w.Job, Comment: tags.WithoutPreempts(*w.Job), For: w.ID})
		case !ok && !begun && isMove(mine): // the daily limit applies to further attempts
			steps = append(steps, Step{Do: Tag, Job: *w.Job, Comment: tags.WithoutPreempts(*w.Job), For: w.ID})
		case !ok && !begun: // because of a time in the past, the preemptor no longer comes first in the plan
			comment := tags.WithPreempts(*w.Job, time.Unix(0, 0))
			steps = append(steps, Step{Do: Tag, Job: *w.Job, Comment: comment, For: w.ID})
		}
	}
	ready := true
	var warned, ended []Step
	for _, j := range mine {
		if !slices.Contains(stop, j.ID) {
			steps = append(steps, c.dropFrom(*j, s.At))
			continue
		}
		p, _ := tags.PreemptedBy(*j)
		grace, mode := r.Grace(*j), r.ModeOf(*j)
		if p.Move {
			grace, mode = 0, Requeue
		}
		if grace > 0 && !p.Warned {
			p.Warned, p.End = true, s.At.Add(grace+time.Second).Truncate(time.Second)
			warned = append(warned, Step{Do: Warn, Job: *j, Comment: tags.WithPreemption(*j, p), For: w.ID})
		}
		ready = ready && (grace == 0 || p.Warned && !s.At.Before(p.End))
		ended = append(ended, Step{Do: Stop, Job: *j, Mode: mode, For: w.ID, Move: p.Move})
	}
	switch {
	case !withdrawn(v, made, mine):
		return steps
	case ready:
		return append(steps, ended...)
	}
	return append(steps, warned...)
}

// stillChosen returns those of the marked jobs that still have to be stopped for the k-th waiting job. ok is false if
// they no longer make room for it.
func stillChosen(
	r Rules, c Settings, s plan.Snapshot, v *plan.View, made offer.Plan, k int, mine []*slurm.Job,
) (stop []uint32, ok bool) {
	if !isMove(mine) {
		return newSearch(s, v, made, k, allowed(r, s, *v.Waiting[k], mine)).choose(v.Jobs[k])
	}
	movable := slices.DeleteFunc(slices.Clone(mine), func(j *slurm.Job) bool { return !c.movable(*j, s.At) })
	m := newMoves(s, v, made, k, movable)
	return m.choose()
}

// isMove reports whether the marked jobs are moved. Otherwise, they are preempted; marks of both kinds never occur
// together.
func isMove(mine []*slurm.Job) bool {
	p, _ := tags.PreemptedBy(*mine[0])
	return p.Move
}

// dropFrom is like drop. If the job must not be moved any more, for example because its user has withdrawn the
// permission, its current run is not marked again: otherwise, the user could use up the daily limit.
func (c Settings) dropFrom(j slurm.Job, now time.Time) Step {
	step := drop(j)
	if p, _ := tags.PreemptedBy(j); p.Move && !c.movable(j, now) {
		step.Comment = tags.WithoutMoves(j)
	}
	return step
}

// anyWarned reports whether any of the marked jobs has received the signals that begin its grace time.
func anyWarned(mine []*slurm.Job) bool {
	return slices.ContainsFunc(mine, func(j *slurm.Job) bool {
		p, _ := tags.PreemptedBy(*j)
		return p.Warned
	})
}

// anyStopped reports whether slurmctld shows a job that was marked for the preemptor and whose run has ended.
func anyStopped(s plan.Snapshot, preemptor uint32) bool {
	return slices.ContainsFunc(s.Queue.All, func(j slurm.Job) bool {
		p, ok := tags.PreemptedBy(j)
		before, requeued := tags.WasPreemptedBy(j)
		return ok && p.Job == preemptor && !j.Holds() || requeued && before.Job == preemptor
	})
}

// withdrawn reports whether the nodes of the jobs have published the offers in the plan. Until they do so, slurmctld
// could start another job on units that the plan reserves for the preemptor.
func withdrawn(v *plan.View, made offer.Plan, jobs []*slurm.Job) bool {
	for _, j := range jobs {
		for _, name := range j.Nodes {
			if m := v.Member(name); m >= 0 && plan.Differs(v.Members[m], v.Counts(made, m)) {
				return false
			}
		}
	}
	return true
}
