package jobreport

import (
	"fmt"
	"time"

	"caelum/internal/core/predict"
)

// requeues returns the advice on a job that ran several times.
func requeues(j Job) []Advice {
	if len(j.Earlier) == 0 && len(j.Growths) == 0 {
		return nil
	}
	text := "After each requeue, the script starts again from the beginning, so write checkpoints."
	if n := len(j.Growths); n > 0 {
		g := j.Growths[n-1]
		why := "the job ran out of memory"
		if g.Cause == predict.Foreseen {
			why = "the job would have run out of memory"
		}
		text = fmt.Sprintf("Caelum requeued the job with a larger profile, because the %s was too small: %s. ",
			g.Profile, why) + text
	}
	return []Advice{
		{
			Topic: Requeued, Text: text + " To keep the output of every run:",
			Paste: []string{"#SBATCH --open-mode=append"},
		},
		{Topic: Requeued, Text: "If the job must not run twice:", Paste: []string{"#SBATCH --no-requeue"}},
	}
}

const (
	// unused is the fraction of the time limit below which a run time makes a shorter limit advisable. Backfill starts
	// jobs with shorter limits earlier.
	unused = 0.25
	// longLimit is the shortest time limit, in seconds, that timeLimit advises users to shorten.
	longLimit = 30 * 60
	// reserve is the ratio of the time limit that timeLimit proposes to the run time or to the limit that was
	// reached.
	reserve = 1.5
)

// timeLimit returns the advice on the time limit. The run time of a job on a larger slice than requested does not show
// that a shorter limit is sufficient, because the job's next run may be slower.
func timeLimit(j Job) []Advice {
	switch {
	case j.Limit == 0:
		return nil
	case j.State == "TIMEOUT":
		return []Advice{{
			Topic: TimeLimit, Text: "The job reached its time limit. Write checkpoints, or request more time:",
			Paste: []string{timeLine(float64(j.Limit))},
		}}
	case j.State == "COMPLETED" && j.Run > 0 && j.Limit >= longLimit && float64(j.Run) < unused*float64(j.Limit) &&
		!j.enlarged():
		return []Advice{{
			Topic: TimeLimit,
			Text: fmt.Sprintf("The job used %.0f%% of its time limit. With a shorter limit, Slurm can start it "+
				"earlier:", 100*float64(j.Run)/float64(j.Limit)),
			Paste: []string{timeLine(float64(j.Run))},
		}}
	}
	return nil
}

// enlarged reports whether the job held a slice with a profile that it had not requested.
func (j Job) enlarged() bool {
	for _, s := range j.Slices {
		if len(j.request) > 0 && j.request[s.Profile] == 0 {
			return true
		}
	}
	return false
}

// timeLine returns the line that requests reserve times the given number of seconds, rounded up to 5 minutes.
func timeLine(seconds float64) string {
	const step = 5 * time.Minute
	limit := (time.Duration(reserve*seconds)*time.Second + step - time.Second).Truncate(step)
	return "#SBATCH --time=" + Clock(int(limit.Seconds()))
}

// Clock formats seconds as Slurm's [D-]HH:MM:SS.
func Clock(seconds int) string {
	text := fmt.Sprintf("%02d:%02d:%02d", seconds/3600%24, seconds/60%60, seconds%60)
	if days := seconds / 86400; days > 0 {
		text = fmt.Sprintf("%d-%s", days, text)
	}
	return text
}
