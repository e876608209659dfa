package setup

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"caelum/internal/core/mig"
	"caelum/internal/core/plan"
	"caelum/internal/slurm"
)

// Conversion is a conversion of nodes and its progress.
type Conversion struct {
	Nodes     []string
	Partition string
	Trial     bool   `json:",omitempty"`
	Decisions string // the path of the decision table
	Files     []Saved
	Undo      bool   `json:",omitempty"`
	Step      string // the next step, or empty if the conversion is complete
	// Drained lists the nodes that setup has drained. It resumes only these.
	Drained []string `json:",omitempty"`
	// GPUs holds the numbers of GPUs before the conversion, of the nodes that were not converted earlier.
	GPUs map[string]int
	// Slurmctld and Slurmds hold the start times of the daemons before the files were written.
	Slurmctld time.Time            `json:",omitzero"`
	Slurmds   map[string]time.Time `json:",omitempty"`
}

// Saved is a file before and after the changes, with its owner and mode.
type Saved struct {
	File
	Mode     uint32
	UID, GID int
	// Told is the content of a file with other changes for which setup has printed the reverse patch, or nil.
	Told []byte `json:",omitempty"`
}

// Late reports whether a file is written only after slurmctld's restart, or restored before it: slurmctld reads a
// changed job_submit.lua at once, and refuses jobs with slices while it does not know gres/mig.
func (s Saved) Late() bool { return s.Old != nil && path.Base(s.Path) == "job_submit.lua" }

// Own returns the nodes of the conversion.
func (c *Conversion) Own(nodes []slurm.Node) []slurm.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n slurm.Node) bool { return !slices.Contains(c.Nodes, n.Name) })
}

// Record records the start times of the daemons before files are written.
func (c *Conversion) Record(slurmctld time.Time, nodes []slurm.Node) {
	c.Slurmctld, c.Slurmds = slurmctld, map[string]time.Time{}
	for _, n := range nodes {
		c.Slurmds[n.Name] = n.SlurmdStartTime
	}
}

// Busy returns a line for each node of the conversion on which jobs hold GPUs, with these jobs.
func (c *Conversion) Busy(nodes []slurm.Node, jobs []slurm.Job) (lines []string) {
	for _, n := range c.Own(nodes) {
		var on []string
		for _, j := range slurm.On(jobs, n.Name) {
			if j.Present() && (j.State == "COMPLETING" || j.GPUsPerNode() > 0 || j.Exclusive ||
				len(j.PerNode.Named("shard")) > 0) {
				on = append(on, fmt.Sprintf("%d of %s", j.ID, j.User))
			}
		}
		if n.GresUsed.Total("gpu")+n.GresUsed.Total("shard") > 0 || n.Is("COMPLETING") {
			lines = append(lines, fmt.Sprintf("GPUs of %s are in use by jobs: %s", n.Name, strings.Join(on, ", ")))
		}
	}
	return lines
}

// Missing returns a line for each reason why nodes have not registered with the new configuration. slurmd of a node
// that is down, and that is not converted, reads it when it starts.
func (c *Conversion) Missing(nodes []slurm.Node) (lines []string) {
	missing := map[string][]string{}
	for _, n := range nodes {
		before, recorded := c.Slurmds[n.Name]
		own, down := slices.Contains(c.Nodes, n.Name), slices.ContainsFunc(absent, n.Is)
		gpus, counted := c.GPUs[n.Name]
		why := ""
		switch {
		case !own && down:
		case recorded && (n.SlurmdStartTime.Equal(before) || n.SlurmdStartTime.IsZero()):
			why = "slurmd has not been restarted"
		case !own:
		case down || n.Unregistered:
			why = "slurmd has not registered"
		case counted && c.Undo && n.Gres.Total("gpu") != gpus, // measured with 22.05.8
			counted && !c.Undo && n.Gres.Total("gpu") == gpus && sliced(n.Gres):
			why = oldGPUs
		case n.Is("INVALID_REG"):
			why = "slurmd registered other GPUs than slurm.conf lists; check MIG mode, gres.conf and slurmd's log"
		case !c.Undo && plan.StateIn(n.Extra) == "":
			why = "the agent (caelumd) has not published the state of the GPUs"
		}
		if why != "" {
			missing[why] = append(missing[why], n.Name)
		}
	}
	for why, names := range missing {
		lines = append(lines, slurm.FoldHosts(names)+": "+why)
	}
	slices.Sort(lines)
	return lines
}

// oldGPUs is the reason why the agent of a converted node cannot publish: slurmd registered the node's GPUs, instead of
// its slots, after slurmctld's restart and before its own. After --undo, slurmctld counts the slots.
const oldGPUs = "slurmctld still counts the GPUs that slurmd registered before its restart; restart slurmctld again"

// sliced reports whether a node's GPUs hold slices. Only then does the node have more slots than GPUs.
func sliced(gres slurm.GRESList) bool {
	return slices.ContainsFunc(gres, func(g slurm.GRES) bool {
		return g.Name == "mig" && g.Type != slurm.ClosedType && g.Type != mig.Full
	})
}

// RestartAgain reports whether the nodes for which Missing has returned lines wait only for a restart of slurmctld.
func RestartAgain(lines []string) bool {
	return len(lines) == 1 && strings.HasSuffix(lines[0], oldGPUs)
}

// absent lists the states of a node whose slurmd does not answer.
var absent = []string{"DOWN", "UNKNOWN", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"}

// DrainReason is the reason of the nodes that setup drains.
const DrainReason = "caelum setup"

// Resumable returns the drained nodes that setup resumes: those that it has drained, and those that slurmctld has
// drained because slurmd had registered before its restart (from 24.11).
func (c *Conversion) Resumable(nodes []slurm.Node) (names []string) {
	for _, n := range nodes {
		ours := slices.Contains(c.Drained, n.Name) &&
			(strings.HasPrefix(n.Reason, DrainReason) || strings.HasPrefix(n.Reason, "gres/"))
		if n.Is("DRAIN") && (ours || strings.HasPrefix(n.Reason, "gres/mig count reported lower")) {
			names = append(names, n.Name)
		}
	}
	return names
}

// InTrial returns a line for each job that names the partition of this trial, which --undo removes. slurmctld would end
// these jobs (NODE_FAIL).
func (c *Conversion) InTrial(jobs []slurm.Job) (lines []string) {
	for _, j := range jobs {
		exists := j.State == "PENDING" || j.Present()
		if exists && slices.Contains(strings.Split(j.Partition, ","), c.Partition) {
			lines = append(lines, fmt.Sprintf("job %d of %s is in partition %s, which ends: cancel it, or move it "+
				"(scontrol update job=%[1]d partition=...)", j.ID, j.User, c.Partition))
		}
	}
	return lines
}

// Unoffered returns the reason why no node of the conversion offers slices, or nil if one does, or if all of them are
// drained for another reason.
func (c *Conversion) Unoffered(nodes []slurm.Node) []string {
	var waiting []string
	for _, n := range c.Own(nodes) {
		if n.Gres.Total("mig") > n.Gres.Profiles()[slurm.ClosedType] {
			return nil
		}
		if !n.Is("DRAIN") {
			waiting = append(waiting, slurm.FoldHosts(c.Nodes)+": no slices are on offer yet; if this lasts, run "+
				"`caelum doctor` there")
		}
	}
	return slices.Compact(waiting)
}

// Commands returns the commands that an administrator must run on the nodes so that they register.
func (c *Conversion) Commands() []string {
	var conf []string
	for _, f := range c.Files {
		if f.Path != c.Decisions && path.Base(f.Path) != "job_submit.lua" {
			conf = append(conf, f.Path)
		}
	}
	own := []string{"    nvidia-smi -mig 1      # for the GPUs whose MIG mode is off",
		"    systemctl enable --now caelumd"}
	if c.Undo {
		own = []string{"    systemctl disable --now caelumd; nvidia-smi mig -dci; nvidia-smi mig -dgi",
			"    nvidia-smi -mig 0      # if MIG mode was off before"}
	}
	return slices.Concat(
		[]string{"on hosts with copies of these files, replace the copies: " + strings.Join(conf, " "),
			"on " + slurm.FoldHosts(c.Nodes) + ":"},
		own,
		[]string{"    systemctl restart slurmd", "on all other nodes:", "    systemctl restart slurmd"},
	)
}
