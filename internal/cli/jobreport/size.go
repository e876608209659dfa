package jobreport

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
	"caelum/internal/core/tags"
)

// everywhere is a layout that contains every placement.
const everywhere = ^mig.Layout(0)

// size returns the advice on the profile.
func size(j Job, d Data) []Advice {
	switch {
	case j.State == "OUT_OF_MEMORY":
		return []Advice{{Topic: OutOfMemory, Text: "The job ran out of host memory, not of GPU memory. " +
			"Request more host memory with --mem or --mem-per-gpu."}}
	case j.outOfMemory():
		return j.larger()
	case !j.measured():
		return []Advice{j.unmeasured(d.Now)}
	case j.State == "COMPLETED":
		return j.smaller(d.Site)
	case !j.Ended():
		return []Advice{{Topic: NotEnded, Text: "The job has not ended, so its usage is not final."}}
	}
	text := "The run did not complete, so it does not show how much GPU memory the job needs."
	if j.State == "FAILED" {
		text = fmt.Sprintf("The job failed with exit status %d. The measured peak does not explain the failure, but "+
			"it does not include an allocation that failed. If the job's output reports that GPU memory ran out, "+
			"request a larger slice.", j.Exit)
	}
	return []Advice{{Topic: Unclear, Text: text}}
}

// unmeasured returns the reason why the usage is unknown.
func (j Job) unmeasured(now time.Time) Advice {
	a := Advice{Topic: NotMeasured}
	if !j.Ended() {
		a.Topic = NotEnded
	}
	switch {
	case !j.GPU:
		a.Text = "The job's record contains no GPU request. slurmdbd records GPU requests only if " +
			"AccountingStorageTRES contains gres/gpu."
	case j.Start == 0 && j.Ended():
		a.Text = "The job ended before it started."
	case j.Start == 0:
		a.Text = "The job has not started. To see the reason, run:"
		a.Paste = []string{"caelum explain " + first(j.ID)}
	case j.outside:
		a.Text = "According to slurmdbd, the job got GPUs without Caelum: its record shows neither slices nor " +
			"Caelum's tags. Caelum does not measure the GPU usage of such jobs."
	case !j.Ended():
		a.Text = "The usage is recorded after the job ends. To see the slices of the running job, run:"
		a.Paste = []string{fmt.Sprintf("srun --jobid %d --overlap caelum job %[1]d", j.raw)}
	case len(j.Slices) > 0:
		a.Text = "The job ended before the agent measured its usage."
	case now.Sub(time.Unix(j.End, 0)) < recording:
		a.Text = "The GPU usage has not been recorded yet. The agents usually record it within a few minutes after " +
			"the end of the job."
	default:
		a.Text = "slurmdbd has no record of the GPU usage: the node had no Caelum agent, your site's agents do not " +
			"record it, or slurmctld has restarted and the agents have not recorded it again yet."
	}
	return a
}

// recording is the time after the end of a job within which the agents usually record its usage. A recorder repeats a
// failed attempt after pauses that start at 5 s and double each time, so there is time for about six attempts.
const recording = 5 * time.Minute

// first returns the first task that an id such as 12_[4-9] refers to; it returns any other id unchanged.
func first(id string) string {
	array, tasks, pending := strings.Cut(id, "_[")
	if !pending {
		return id
	}
	end := strings.IndexFunc(tasks, func(r rune) bool { return r < '0' || r > '9' })
	return array + "_" + tasks[:max(end, 0)]
}

// larger returns the advice on a job that ran out of GPU memory.
func (j Job) larger() []Advice {
	k := slices.IndexFunc(j.observed, predict.Run.OutOfMemory)
	for n, r := range j.observed {
		if r.OutOfMemory() && r.PeakMiB > j.observed[k].PeakMiB {
			k = n
		}
	}
	s := j.Slices[k]
	text := "The job probably ran out of GPU memory"
	if j.observed[k].End != "" {
		text = "The job ran out of GPU memory"
	}
	text += fmt.Sprintf(" after a peak of %.0f MiB on a %s.", s.PeakMiB, s.Profile)
	next := choices(j.models[k], func(m *mig.Model) (string, bool) {
		return predict.Larger(m.Select(mig.Plain), everywhere, s.Profile, 0)
	})
	if len(next) == 0 {
		return []Advice{{Topic: OutOfMemory, Text: text + " No profile of this GPU model is larger, so the job must " +
			"use less memory, for example with a smaller batch size."}}
	}
	name := Advice{Topic: OutOfMemory, Text: "Or name a larger profile:", Paste: []string{j.gres(s, next[0])}}
	if len(next) > 1 { // the profile depends on the GPU model, but the profile's memory does not
		name.Text, name.Paste = "Or request more memory:", j.migMem(s, memory(next[0], j.models[k]))
	}
	switch growing := tags.Value(j.comment, tags.Grow) != ""; {
	case growing:
		name.Text = text + " If the job cannot grow any further, request a larger slice:"
	case strings.Contains(j.ID, "+"): // components of het jobs do not grow
		name.Text = text + " Request a larger slice:"
	default:
		rerun := " Let Caelum rerun the batch job on a larger slice:"
		if j.Chosen == "" { // Caelum does not change a profile that the user has named
			rerun = " Let Caelum choose the profile (remove --mig) and rerun the batch job on a larger slice:"
		}
		return []Advice{{
			Topic: OutOfMemory, Text: text + rerun,
			Paste: []string{j.gpus(s), "#SBATCH --mig-grow=oom"},
		}, name}
	}
	return []Advice{name}
}

// smaller returns the advice on a job that completed: the smallest sufficient profile.
func (j Job) smaller(site predict.Site) []Advice {
	need, s, models := j.need(site)
	held := s.Profile
	if names := slices.Collect(maps.Keys(j.request)); len(names) == 1 {
		held = names[0] // the slice may be larger because GPUs were idle
	} else if len(names) > 1 {
		return []Advice{{Topic: Unclear, Text: "The job requested several profiles, and only the usage of the " +
			"fullest slice is recorded."}}
	}
	if len(models) == 0 {
		models = mig.Models() // those of the requested profile; the job ran on a GPU without MIG
	}
	switch mib := memory(held, models); {
	case s.PeakMiB == 0:
		return []Advice{{Topic: Unclear, Text: "The agent measured no use of GPU memory. If the job does not use its " +
			"GPU, do not request one."}}
	case held == mig.Full && s.MemoryMiB == 0:
		return []Advice{{Topic: WellSized, Text: "Jobs get only whole GPUs of this model, so there is nothing to do."}}
	case held != s.Profile && mib > 0 && s.PeakMiB > mib:
		return []Advice{{
			Topic: TooSmall,
			Text: fmt.Sprintf("The peak exceeds the %.0f MiB of the requested %s. The job completed only because it "+
				"got a %s. Request enough memory:", mib, held, s.Profile),
			Paste: j.migMem(s, math.Ceil(need.PeakMiB)),
		}}
	}
	least := choices(models, func(m *mig.Model) (string, bool) {
		name, ok := need.On(m.Select(mig.Plain), everywhere)
		if !ok || units(m, name) >= units(m, held) {
			return held, true
		}
		return name, true
	})
	switch fullGPUs := s.Profile == mig.Full && j.perNode(s) > 1; { // slices do not support GPU-to-GPU communication
	case fullGPUs || len(least) < 2 && slices.Equal(least, []string{held}) || len(least) == 0:
		text := fmt.Sprintf("No profile smaller than the requested %s has enough memory for the peak, so there is "+
			"nothing to do.", held)
		if held != s.Profile {
			text += fmt.Sprintf(" The job got a %s instead of a %s. Limits and billing use the requested profile.",
				s.Profile, held)
		}
		return []Advice{{Topic: WellSized, Text: text}}
	case len(least) > 1:
		return []Advice{{
			Topic: Unclear, Text: "A smaller profile may be sufficient, depending on the GPU model. Request the " +
				"memory:",
			Paste: j.migMem(s, math.Ceil(need.PeakMiB)),
		}}
	}
	text := fmt.Sprintf("With a margin of %.0f%%, the peak also fits into a %s. With a smaller slice, the job can "+
		"start earlier, but may run longer.", 100*site.Margin, least[0])
	name := Advice{Topic: TooLarge, Text: text + " Name this profile:", Paste: []string{j.gres(s, least[0])}}
	choose := Advice{Topic: TooLarge, Paste: []string{j.gpus(s)}}
	if j.Chosen == "" {
		choose.Text = "Or name no profile (and remove --mig), so that Caelum chooses the size from earlier runs:"
		return []Advice{name, choose}
	}
	choose.Text, name.Text = text+" If the script uses --mig-mem or --mig=off, remove the option, so that Caelum "+
		"chooses the size from earlier runs:", "Or name the profile:"
	if j.learns() {
		choose.Text, choose.Paste = text+" Unless learning is off at this site, the next submission of the "+
			"unchanged script, with the same arguments, requests this profile, and you have to do nothing.", nil
	}
	return []Advice{choose, name}
}

// learns reports whether Caelum chose the profile in a way in which the next submission of the unchanged script gets a
// profile learned from this run. It learns nothing from jobs without a script.
func (j Job) learns() bool {
	switch tags.Value(j.comment, tags.By) {
	case "", "memory", "off", "full":
		return false
	}
	return tags.Value(j.comment, tags.Fingerprint) != ""
}

// need returns the memory and the compute capacity that the job needs according to its last run. It also returns the
// slice with the highest peak and its possible GPU models.
func (j Job) need(site predict.Site) (need predict.Need, fullest Slice, models []*mig.Model) {
	for k, s := range j.Slices {
		if s.Measured && (!fullest.Measured || s.PeakMiB > fullest.PeakMiB) {
			fullest, models = s, j.models[k]
		}
	}
	need, _ = predict.Predict(predict.History{Level: predict.ByKey, Runs: j.observed}, site)
	need.HighestMiB, need.PeakMiB = fullest.PeakMiB, fullest.PeakMiB*(1+site.Margin)
	return need, fullest, models
}

// choices returns the distinct results of choose for the possible GPU models of a slice.
func choices(models []*mig.Model, choose func(*mig.Model) (string, bool)) (names []string) {
	for _, m := range models {
		if name, ok := choose(m); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// units returns the number of units that a profile occupies, or 0 if the model does not have the profile.
func units(m *mig.Model, profile string) int {
	if profile == mig.Full {
		return m.Grid + 1 // larger than the largest profile
	}
	if k, ok := m.ProfileIndex(profile); ok {
		return m.Profiles[k].Size
	}
	return 0
}

// perNode returns the number of GPUs that the job requested on each node.
func (j Job) perNode(s Slice) int {
	total := 0
	for _, n := range j.request {
		total += n
	}
	if total == 0 {
		return max(s.Count, 1)
	}
	nodes := max(len(j.Nodes), 1)
	return (total + nodes - 1) / nodes
}

// gpus returns the line that requests the same number of GPUs per node but no profile.
func (j Job) gpus(s Slice) string { return fmt.Sprintf("#SBATCH --gres=gpu:%d", j.perNode(s)) }

// gres returns the line that requests the same number of slices per node with another profile.
func (j Job) gres(s Slice, profile string) string {
	return fmt.Sprintf("%s,mig:%s:%d", j.gpus(s), profile, j.perNode(s))
}

// migMem returns the lines that request the same number of slices with at least the given memory in MiB.
func (j Job) migMem(s Slice, mib float64) []string {
	return []string{j.gpus(s), fmt.Sprintf("#SBATCH --mig-mem=%.0f", mib)}
}
