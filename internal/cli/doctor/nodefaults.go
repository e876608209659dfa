package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
)

// NodeFaults returns the faults of this node that do not depend on slurmctld: the agent, the driver, the GPUs, the
// slices, the slots and the plugin's files. It runs no Slurm commands, and it returns as soon as ctx is done. All
// findings have the Error severity.
func NodeFaults(ctx context.Context, host Host) []Finding {
	f := &Facts{RunDir: host.RunDir, Missing: map[Source]Finding{
		Slurmctld: note("slurmctld is not queried"),
		OwnNode:   note("slurmctld is not queried"),
		Slurmdbd:  note("slurmdbd is not queried"),
		Decisions: note("the decision table is not on this host"),
	}}
	client := api.NewClient(host.RunDir)
	f.readAgentAgain(ctx, client)
	f.readSlots(host)
	f.readLocalPlugin(slurmConfs())
	f.probeWithin(ctx, host)
	f.Unlisted = lostSlices(f.Agent)
	f.readModule(host)
	f.readOwners(host)
	var found []Finding
	for _, g := range examine(f, nodeChecks()) {
		if g.Severity == Error {
			g.Text, _, _ = strings.Cut(g.Text, "; not checked: ")
			found = append(found, g)
		}
	}
	return found
}

// restartTime is the maximum time that NodeFaults waits for an agent that does not respond. systemd restarts a crashed
// agent after RestartSec (1 s, etc/caelumd.service), and the agent usually takes less than half a second to start.
const restartTime = 3 * time.Second

// readAgentAgain is like readAgent, but repeats the request for restartTime.
func (f *Facts) readAgentAgain(ctx context.Context, client *api.Client) {
	ctx, cancel := context.WithTimeout(ctx, restartTime)
	defer cancel()
	var s *api.Status
	err := api.Retry(ctx, func(ctx context.Context) (err error) {
		s, err = client.Status(ctx)
		return err
	})
	f.setAgent(client, s, err)
}

// nodeChecks returns the checks that NodeFaults performs.
func nodeChecks() []check {
	list := []check{
		{"gpus", "", []Source{Agent}, brokenGPUs},
		{"instances", "", []Source{Agent}, foreignInstances},
		{"plugin", "", []Source{Plugstack}, plugin},
		// This check only reports that the driver cannot be read. It does not check the owners of device files: the
		// agent changes an owner shortly before its reply shows the change, and a false alarm would drain the node.
		{"device files", "", []Source{Agent, Devices}, func(*Facts) []Finding { return nil }},
	}
	for _, c := range checks() {
		if slices.Contains([]string{"ledger", "slot files", "driver", "owners", "memory"}, c.name) {
			list = append(list, c)
		}
	}
	return list
}

// brokenGPUs reports the GPUs that do not work. It omits GPUs whose MIG mode is off, because a site may want a GPU
// without slices.
func brokenGPUs(f *Facts) []Finding {
	var found []Finding
	managed := false
	for _, g := range f.Agent.GPUs {
		managed = managed || g.Problem == ""
		if gpu.Broken(g.Problem) {
			found = append(found, fault(fmt.Sprintf("GPU %d: %s", g.Index, g.Problem), "drain the node"))
		}
	}
	if !managed {
		found = append(found, noGPU)
	}
	return found
}

// foreignInstances reports foreign instances. A stuck instance is not a fault of the node: any user can cause one with
// a process that uses the instance, the agent keeps trying to destroy it, and jobs can use the other instances.
func foreignInstances(f *Facts) []Finding {
	foreign := Facts{}
	for _, g := range f.Agent.GPUs {
		g.Instances = slices.DeleteFunc(slices.Clone(g.Instances), func(in api.Instance) bool {
			return in.State != api.StateForeign
		})
		foreign.Agent.GPUs = append(foreign.Agent.GPUs, g)
	}
	found := instances(&foreign)
	for i := range found {
		found[i].Severity = Error
	}
	return found
}

// probeWithin checks that the driver answers for every GPU that the agent manages. It makes few calls, because a list
// of all instances takes seconds on a busy node. It returns when ctx is done, because a call to the driver can hang.
func (f *Facts) probeWithin(ctx context.Context, host Host) {
	if os.Geteuid() != 0 {
		f.Missing[Devices] = warning("the driver is probed only by root", "run `caelum doctor` as root")
		return
	}
	if f.lacks(Agent) {
		return
	}
	type answer struct {
		failed map[int]error
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		failed, err := probe(host)
		done <- answer{failed, err}
	}()
	const next = "find the cause with `nvidia-smi -L`"
	select {
	case a := <-done:
		if a.err != nil {
			f.Missing[Devices] = fault(fmt.Sprintf("the driver cannot be read: %v", a.err), next)
			return
		}
		for _, g := range f.Agent.GPUs {
			if err := a.failed[g.Index]; err != nil && g.Problem == "" {
				f.Missing[Devices] = fault(fmt.Sprintf("GPU %d: %v", g.Index, err), next)
			}
		}
	case <-ctx.Done():
		f.Missing[Devices] = fault("the NVIDIA driver does not answer",
			next+" and in the kernel log (Xid messages)")
	}
}

func probe(host Host) (map[int]error, error) {
	hw, err := gpu.OpenNVML(host.Config.NVMLLibrary, gpu.Caps{Dev: host.Config.DeviceDir, Proc: "/proc"})
	if err != nil {
		return nil, err
	}
	defer hw.Close()
	return hw.Probe()
}

// lostSlices returns the slices of leases that are no longer on the GPUs according to the agent, which compares the
// GPUs with its ledger every minute.
func lostSlices(s api.Status) (lost []api.Instance) {
	there := map[string]bool{}
	usable := map[int]bool{}
	for _, g := range s.GPUs {
		usable[g.Index] = g.Problem == ""
		for _, in := range g.Instances {
			there[in.UUID] = true
		}
	}
	for _, l := range s.Leases {
		for _, slice := range l.Slices {
			if usable[slice.GPU] && !there[slice.UUID] {
				lost = append(lost, api.Instance{
					Placement: api.Placement{Profile: slice.Profile, Start: slice.Start, Size: slice.Size},
					UUID:      slice.UUID, Job: l.Job,
				})
			}
		}
	}
	return lost
}

// slurmConfs returns the paths at which slurmd looks for slurm.conf. In a configless cluster, it is in /run/slurm/conf.
func slurmConfs() []string {
	return []string{os.Getenv("SLURM_CONF"), "/run/slurm/conf/slurm.conf", "/etc/slurm/slurm.conf"}
}

// readLocalPlugin is like readPlugin, but reads slurm.conf instead of asking slurmctld. If slurm.conf does not set
// PluginDir, it searches pluginDirs. The plugin is not checked if there is no slurm.conf at any of the given paths, or
// if slurm.conf does not specify where the plugin is.
func (f *Facts) readLocalPlugin(confs []string) {
	i := slices.IndexFunc(confs, func(path string) bool { return path != "" && isFile(path) })
	if i < 0 {
		f.Missing[Plugstack] = note("slurm.conf was not found")
		return
	}
	text, err := os.ReadFile(confs[i])
	if err != nil {
		f.Missing[Plugstack] = note(fmt.Sprintf("slurm.conf cannot be read (%v)", err))
		return
	}
	f.Config.Values = localValues(string(text))
	f.Config.Values["SLURM_CONF"] = confs[i]
	known := f.Config.Values["PluginDir"] != ""
	if !known {
		var dirs []string
		for _, pattern := range pluginDirs {
			found, _ := filepath.Glob(pattern)
			dirs = append(dirs, found...)
		}
		f.Config.Values["PluginDir"] = strings.Join(dirs, ":")
	}
	f.readPlugin()
	if f.lacks(Plugstack) && includeForm.MatchString(string(text)) {
		f.Missing[Plugstack] = note("an included file may set PlugStackConfig")
	}
	if f.Plugin.Named && f.Plugin.File == "" && !filepath.IsAbs(f.Plugin.Path) && !known {
		f.Missing[Plugstack] = note("slurm.conf does not set PluginDir")
	}
}

// includeForm matches a line of slurm.conf that includes another file.
var includeForm = regexp.MustCompile(`(?mi)^[ \t]*include[ \t]`)

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// localValues returns the values of PluginDir and PlugStackConfig in the text of slurm.conf. Slurm ignores the case of
// its keys.
func localValues(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		key, value, _ := strings.Cut(line, "=")
		for _, name := range []string{"PluginDir", "PlugStackConfig"} {
			if strings.EqualFold(strings.TrimSpace(key), name) {
				values[name] = strings.Trim(strings.TrimSpace(value), `"`)
			}
		}
	}
	return values
}
