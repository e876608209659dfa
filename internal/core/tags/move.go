package tags

import (
	"fmt"
	"time"

	"caelum/internal/slurm"
)

// Users write the following words into their jobs' Comments (`sbatch --comment`, `scontrol update`). They concern only
// moves of the user's own job.
const (
	// movable permits the watcher to move the job.
	movable = "caelum:movable"
	// checkpoint is followed by the time of the job's last checkpoint in Unix seconds.
	checkpoint = "caelum:checkpoint="
)

// PermitsMove reports whether the job's user permits the watcher to move the job.
func PermitsMove(j slurm.Job) bool { return Has(j.Comment, movable) }

// SavedUntil returns the time up to which a running job would not lose its work if it were requeued: the time of the
// last checkpoint that the job has reported, or else its start. The result is never earlier than the start and never
// later than now, because the user can report any time.
func SavedUntil(j slurm.Job, now time.Time) time.Time {
	seconds, ok := numbers(Value(j.Comment, checkpoint), 1)
	if !ok {
		return j.Start
	}
	switch at := time.Unix(seconds[0], 0); {
	case at.Before(j.Start):
		return j.Start
	case at.After(now):
		return now
	default:
		return at
	}
}

// MovableRun reports whether no run of the job has been moved or marked for a move, and the current run has not been
// excluded from moves (WithoutMoves).
func MovableRun(j slurm.Job) bool {
	text := Value(j.AdminComment, Moved)
	if text == "" {
		return true
	}
	n, ok := numbers(text, 2)
	return ok && n[0] == 0 && n[1] != int64(j.Restarts)
}

// WithoutMoves returns the job's admin_comment with a tag that excludes the current run from moves.
func WithoutMoves(j slurm.Job) string {
	return Set(j.AdminComment, Moved, fmt.Sprintf("0:%d", j.Restarts))
}
