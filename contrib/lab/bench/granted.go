package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// report checks the slices of all jobs in a run and returns a line that summarizes the results.
func (r *speedRun) report(ctx context.Context) (string, error) {
	got, err := r.granted(ctx)
	if err != nil {
		return "", err
	}
	log, err := r.Log("slurmctld")
	if err != nil {
		return "", err
	}
	jobs, err := jobTimes(log)
	if err != nil {
		return "", err
	}
	var turnarounds []float64
	var first, last time.Time
	waits, used, larger := 0.0, 0.0, 0
	for k, id := range r.ids {
		t := jobs[id]
		if t == nil || t.submit.IsZero() || t.start.IsZero() || t.end.IsZero() {
			return "", fmt.Errorf("slurmctld's log does not contain both the start and the end of job %s", id)
		}
		if k == 0 {
			first = t.submit
		}
		if t.end.After(last) {
			last = t.end
		}
		turnarounds = append(turnarounds, t.end.Sub(t.submit).Seconds())
		waits += t.start.Sub(t.submit).Seconds()
		p, _ := r.subcluster.ProfileIndex(got[k])
		used += t.end.Sub(t.start).Seconds() * float64(r.subcluster.Profiles[p].Size) / float64(r.subcluster.Grid)
		if got[k] != r.asked[k] {
			larger++
		}
	}
	n := len(turnarounds)
	sum := 0.0
	for _, x := range turnarounds {
		sum += x
	}
	slices.Sort(turnarounds)
	makespan := last.Sub(first).Seconds()
	text := fmt.Sprintf(
		"  %-20s %8.1f s %8.1f s %8.1f s %8.1f s %7.0f s %11.0f%% %7.0f%%   (latest submission %.1f s late)\n",
		r.name, sum/float64(n), median(turnarounds), turnarounds[n*95/100], waits/float64(n), makespan,
		100*used/(makespan*float64(r.nodes*r.gpus)), 100*float64(larger)/float64(n), r.late.Seconds(),
	)
	if r.sizing == "" {
		return text, nil
	}
	lines, err := r.agents()
	return text + lines, err
}

// granted returns the profile of each job's slice. It returns an error if a job did not complete, if Slurm did not
// allocate the requested profile, or if the job's output, the agent's summary of the run and the rules of the
// configuration do not agree about the slice.
func (r *speedRun) granted(ctx context.Context) ([]string, error) {
	ran, err := r.ran()
	if err != nil {
		return nil, err
	}
	var wrong []string
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
		out, stderr, err := r.Exec(ctx, "root", "sacct", "-a", "-X", "-n", "-P", "-S", "now-1days", "-o",
			"JobIDRaw,State,AllocTRES,AdminComment")
		if err != nil {
			return nil, fmt.Errorf("sacct: %w: %s", err, stderr)
		}
		records := map[string][]string{}
		for line := range strings.Lines(out) {
			f := strings.Split(strings.TrimSpace(line), "|")
			records[f[0]] = f
		}
		var all []string
		wrong = nil
		for k, id := range r.ids {
			if why := r.disagrees(k, ran[id], records[id]); why != "" {
				wrong = append(wrong, fmt.Sprintf("job %s: %s", id, why))
			}
			all = append(all, ran[id])
		}
		if len(wrong) == 0 {
			return all, nil
		}
		if time.Now().After(end) { // the agent writes the summary of a run a few seconds after the job ends
			return all, fmt.Errorf("%d of %d jobs: %s", len(wrong), len(r.ids), strings.Join(wrong, "\n"))
		}
	}
}

var (
	allocatedMIG = regexp.MustCompile(`gres/mig:([^=]+)=(\d+)`)
	summarized   = regexp.MustCompile(`(?:^| )caelum:run=[^, ]+,([^, ]+),`)
)

// disagrees describes the first contradiction between the profile that a job reported and the job's record in slurmdbd.
// It returns an empty string if there is none.
func (r *speedRun) disagrees(k int, ran string, record []string) string {
	if len(record) != 4 || record[1] != "COMPLETED" {
		return fmt.Sprintf("the job's record in slurmdbd is %q", record)
	}
	if m := allocatedMIG.FindAllStringSubmatch(record[2], -1); len(m) != 1 || m[0][1] != r.asked[k] || m[0][2] != "1" {
		return fmt.Sprintf("the job requested %s, but Slurm allocated %s", r.asked[k], record[2])
	}
	if r.sizing == "" && ran == r.asked[k] {
		return ""
	}
	if m := summarized.FindStringSubmatch(record[3]); m == nil || m[1] != ran {
		return fmt.Sprintf("the job ran on %s, but its record in slurmdbd contains %q", ran, record[3])
	}
	p, _ := r.subcluster.ProfileIndex(ran)
	q, _ := r.subcluster.ProfileIndex(r.asked[k])
	has, needs := r.subcluster.Profiles[p], r.subcluster.Profiles[q]
	if ran != r.asked[k] && (r.sizing != "adaptive" || has.Size < needs.Size || has.Compute <= needs.Compute) {
		return fmt.Sprintf("the job requested %s, but ran on %s", r.asked[k], ran)
	}
	return ""
}

// ran returns the profile that each job wrote to its output, by job id.
func (r *speedRun) ran() (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(r.Dir, "home", "user1", "slurm-*.out"))
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var id, profile string
		if _, err := fmt.Sscanf(string(text), "ran %s %s", &id, &profile); err != nil {
			return nil, fmt.Errorf("%s contains %q", file, text)
		}
		all[id] = profile
	}
	return all, nil
}

// agents returns a line with the number of times that the agents wrote offers. It returns an error if an agent or the
// watcher logged an error or a message about a defect.
func (r *speedRun) agents() (string, error) {
	writes := 0
	units := []string{"watcher"}
	for _, node := range r.subcluster.nodes {
		units = append(units, "agent-"+node)
	}
	for _, unit := range units {
		log, err := r.Log(unit)
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(log) {
			if strings.Contains(line, `"msg":"published"`) {
				writes++
			}
			if strings.Contains(line, `"level":"error"`) || strings.Contains(line, "report this bug") ||
				strings.Contains(line, "counts as used some slices that no job holds") {
				return "", fmt.Errorf("%s logged: %s", unit, line)
			}
		}
	}
	return fmt.Sprintf("  %-20s %d writes of offers, %.1f per job\n", "", writes, float64(writes)/float64(len(r.ids))),
		nil
}
