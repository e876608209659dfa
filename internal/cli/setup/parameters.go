package setup

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// perLine lists the keys with which lines that describe a single object begin. The other words in these lines are not
// cluster parameters.
var perLine = []string{"NodeName", "PartitionName", "NodeSet", "DownNodes", "FrontendName", "SwitchName"}

func describesObject(l line) bool {
	for _, key := range perLine {
		if l.is(key) {
			return true
		}
	}
	return false
}

// parameter returns the last word with the given key among the lines with cluster parameters. Slurm uses the last
// value of a parameter.
func parameter(lines []line, key string) (in line, w word, ok bool) {
	for _, l := range lines {
		if describesObject(l) {
			continue
		}
		if found, has := l.get(key); has {
			in, w, ok = l, found, true
		}
	}
	return in, w, ok
}

// parameters merges the cluster parameters into slurm.conf. Parameters that the site does not set are appended to top,
// with their comments.
func (m *merger) parameters(top *file, lines []line) {
	wanted, comments := m.generated("slurm.conf")
	for i, want := range wanted {
		key, value := want.words[0].key, want.words[0].value
		in, w, ok := parameter(lines, key)
		if key == "AccountingStorageTRES" && !hasSlurmdbd(lines) {
			m.note("%s: setup adds no AccountingStorageTRES, because without slurmdbd (AccountingStorageType), "+
				"slurmctld does not start with it. Without slurmdbd, sacct shows no jobs and Caelum does not learn "+
				"their sizes.", top.path)
			continue
		}
		if !ok {
			top.tail = append(append(top.tail, comments[i]...), want.text)
			continue
		}
		if key == "SchedulerParameters" {
			value = m.scheduler(in, w, value)
		}
		merged, err := mergeValue(key, m.withoutShards(key, w.value), value)
		if err != nil {
			m.problem(in, err.Error())
			continue
		}
		m.set(in, w, merged)
	}
	for _, l := range lines {
		if flags, ok := l.get("PrologFlags"); ok && strings.Contains(strings.ToLower(flags.value), "runinjob") {
			m.problem(l, "PrologFlags includes RunInJob, so Slurm runs no SPANK prologs; remove RunInJob")
		}
	}
}

// hasSlurmdbd reports whether the site has slurmdbd. Otherwise, slurmctld ends with "slurmdbd is required to run with
// TRES gres/gpu" (22.05.8).
func hasSlurmdbd(lines []line) bool {
	_, w, ok := parameter(lines, "AccountingStorageType")
	return ok && strings.HasSuffix(strings.ToLower(w.value), "slurmdbd")
}

// delays maps the elements of SchedulerParameters that a site may have set deliberately to their effect on slices.
var delays = map[string]string{
	"sched_min_interval": "a job can start that number of microseconds later after its slice is published",
	"batch_sched_delay":  "a batch job can start that number of seconds later after its slice is published",
	"defer":              "slurmctld does not try to start a job when it is submitted, even if its slice is on offer",
}

// scheduler returns the required SchedulerParameters without the elements that the site has set to delay scheduling. It
// adds a note about each of them.
func (m *merger) scheduler(l line, site word, needed string) string {
	wanted := items(needed)
	for _, item := range items(site.value) {
		name := elementName(item)
		effect, delays := delays[name]
		at := slices.IndexFunc(wanted, func(w string) bool { return elementName(w) == name })
		if !delays || at >= 0 && strings.EqualFold(wanted[at], item) {
			continue
		}
		m.note("%s:%d: setup keeps %s of SchedulerParameters: %s.", l.in.path, l.number, item, effect)
		if at >= 0 {
			wanted = slices.Delete(wanted, at, at+1)
		}
	}
	return strings.Join(wanted, ",")
}

// mergeValue merges the required value of a parameter into the site's value. It returns the larger number, or the
// site's list with the missing elements appended. An element with a value, such as bf_interval=30, replaces the site's
// element of the same name.
func mergeValue(key, site, needed string) (string, error) {
	if number, err := strconv.Atoi(needed); err == nil {
		has, err := strconv.Atoi(site)
		if err != nil {
			return "", fmt.Errorf("the value of %s is not a number; set %s=%s", key, key, needed)
		}
		if has >= number {
			return site, nil
		}
		return needed, nil
	}
	list := items(site)
	changed := false
	for _, item := range items(needed) {
		at := -1
		for i, old := range list {
			if elementName(old) == elementName(item) {
				at = i
			}
		}
		switch {
		case at < 0:
			list, changed = append(list, item), true
		case !strings.EqualFold(strings.TrimPrefix(list[at], "job_submit/"), item):
			list[at], changed = item, true
		}
	}
	if !changed {
		return site, nil
	}
	return strings.Join(list, ","), nil
}

// elementName returns the name of a list element in lower case: the part before "=", without the optional prefix of
// plugin names.
func elementName(element string) string {
	name, _, _ := strings.Cut(strings.ToLower(element), "=")
	return strings.TrimPrefix(name, "job_submit/")
}
