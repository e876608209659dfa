package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"caelum/internal/config"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/slurm"
)

// Host describes this host's role in the cluster and the paths that Read uses.
type Host struct {
	// Config is the agent's configuration.
	Config config.Config
	// RunDir is the directory of the agent's sockets.
	RunDir string
	// Controller is true if this host runs slurmctld and is not a GPU node.
	Controller bool
	// Decisions is the path of the decision table on slurmctld's host.
	Decisions string
}

// agentTimeout limits the duration of a request to the agent. A working agent, which answers from memory, replies
// much faster.
const agentTimeout = 10 * time.Second

// Read collects the facts. If a source cannot be read, Read adds a finding to Facts.Missing; it does not report errors
// in any other way.
func Read(ctx context.Context, host Host, ctl *slurm.Client) *Facts {
	f := &Facts{Missing: map[Source]Finding{}, RunDir: host.RunDir, Controller: host.Controller}
	client := api.NewClient(host.RunDir)
	if !host.Controller {
		f.readAgent(ctx, client)
		f.readSlots(host)
	}
	f.readSlurmctld(ctx, host, ctl)
	if !host.Controller {
		f.readPlugin()
		f.readFiles(ctx, host, client)
		f.readModule(host)
		f.Confinement = readConfinement(
			f.Config.Values["CgroupMountpoint"],
			f.Config.Values["CgroupSlice"],
			host.Config.Node,
		)
	}
	if f.Fractions = len(host.Config.Fractions) > 0; f.Fractions && !host.Controller {
		f.SoftMig = host.Config.FractionLimits == config.LimitsSoftMig
		f.readFractions(host.Config)
	}
	f.Notify = readNotify(host.Config)
	settings, _ := host.Config.Planning() // config.Load has checked the settings
	f.Settings = settings.Text
	f.Preempt, f.Learn = host.Config.Preempt, host.Config.Learn
	f.MovesPerDay, f.MovePartitions = host.Config.MovesPerDay, host.Config.MovePartitions
	f.readOwners(host)
	if !host.Controller {
		f.Owners.Unit = devicePolicy(ctx)
	}
	f.readDecisions(host)
	f.readSlurmdbd(ctx)
	return f
}

func (f *Facts) readAgent(ctx context.Context, client *api.Client) {
	s, err := status(ctx, client)
	f.setAgent(client, s, err)
}

// setAgent sets f.Agent to the agent's reply, or adds a finding to f.Missing.
func (f *Facts) setAgent(client *api.Client, s *api.Status, err error) {
	if err != nil {
		f.Missing[Agent] = fault(
			fmt.Sprintf("the agent does not answer on %s (%s): jobs cannot get slices on this node", client.Socket(),
				api.Reason(err)),
			"run `systemctl status caelumd` to see the state of the agent, then `systemctl restart caelumd`; on "+
				"slurmctld's host, which needs no agent, run `caelum doctor --controller` instead",
		)
	} else {
		f.Agent = *s
	}
}

// readSlots checks whether the device file of each slot of the managed GPUs exists.
func (f *Facts) readSlots(host Host) {
	for _, g := range f.Agent.GPUs {
		for _, slot := range g.Slots {
			path := filepath.Join(host.Config.DeviceDir, "caelum", fmt.Sprint("slot", slot))
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				f.NoSlots = append(f.NoSlots, path)
			}
		}
	}
}

// readModule reads the parameters of the driver's kernel module. If they cannot be read, the finding has the Info
// severity, because the agent checks report the consequences of a missing driver.
func (f *Facts) readModule(host Host) {
	var err error
	if f.Driver, err = readDriver("/proc", host.Config.DeviceDir, len(f.Agent.GPUs)); err != nil {
		f.Missing[Module] = note(fmt.Sprintf("the driver's parameters cannot be read (%v)", err))
	}
}

// readDecisions reads the decision table, which need not exist on a GPU node.
func (f *Facts) readDecisions(host Host) {
	var err error
	if f.Table, err = readTable(host.Decisions); err == nil {
		return
	}
	if errors.Is(err, fs.ErrNotExist) && !host.Controller {
		f.Missing[Decisions] = note(
			"the table is not on this host; to check the table, run `caelum doctor --controller` on slurmctld's host",
		)
		return
	}
	f.Missing[Decisions] = fault(
		fmt.Sprintf("%v: after slurmctld's next restart, job_submit.lua will refuse every GPU request", err),
		"run `caelum slurm-config --section decisions` on a GPU node, and write the output to this path",
	)
}

// readSlurmdbd reads the limits in slurmdbd. It does not run sacctmgr if slurmctld did not reply, because sacctmgr
// would probably block until limitsTimeout.
func (f *Facts) readSlurmdbd(ctx context.Context) {
	if f.lacks(Slurmctld) || f.Config.Values["AccountingStorageType"] != slurmdbd {
		return
	}
	var err error
	if f.Limits, err = readLimits(ctx); err != nil {
		f.Missing[Slurmdbd] = note(fmt.Sprintf("the limits in slurmdbd cannot be read (%v)", err))
	}
}

func status(ctx context.Context, client *api.Client) (*api.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	return client.Status(ctx)
}

func (f *Facts) readSlurmctld(ctx context.Context, host Host, ctl *slurm.Client) {
	var err, errNodes, errPartitions error
	f.Asked = time.Now()
	f.Config, err = ctl.Config(ctx)
	f.Answered = time.Now()
	if err == nil {
		f.Nodes, errNodes = ctl.AllNodes(ctx)
		f.Partitions, errPartitions = ctl.Partitions(ctx)
	}
	if err = errors.Join(err, errNodes, errPartitions); err != nil {
		f.Missing[Slurmctld] = fault(
			fmt.Sprintf("slurmctld cannot be queried: %v", err),
			"find the cause with `scontrol ping` and `munge -n | unmunge`",
		)
		f.Missing[OwnNode] = Finding{}
		return
	}
	if host.Controller {
		return
	}
	name := host.Config.Node
	for _, n := range f.Nodes {
		if n.Name == name {
			f.Node = n
			return
		}
	}
	f.ControllerHost = f.lacks(Agent) && f.Config.RunsOn(hostname())
	f.Missing[OwnNode] = fault(
		"slurmctld has no node "+name+", so this host's agent cannot publish offers",
		"set `node:` in caelum.yaml to this host's NodeName, or add the node to slurm.conf",
	)
}

// hostname returns the name of this host, or an empty string if it is unknown.
func hostname() string {
	name, _ := os.Hostname()
	return name
}

// readFiles reads the owners and modes of the capability files between two requests to the agent, so that a job that
// starts or ends in between does not cause a finding. The driver lists instances only for root.
func (f *Facts) readFiles(ctx context.Context, host Host, client *api.Client) {
	if os.Geteuid() != 0 {
		f.Missing[Devices] = warning("the driver lists instances only for root", "run `caelum doctor` as root")
		return
	}
	if f.lacks(Agent) {
		return
	}
	driver, err := readDriverFiles(host.Config, f.unmanaged())
	if err != nil {
		f.Missing[Devices] = fault(
			fmt.Sprintf("the device files of the GPUs and instances cannot be read: %v", err),
			"find the cause with `nvidia-smi -L`",
		)
		return
	}
	f.Unmanaged = driver.unmanaged
	again, err := status(ctx, client)
	if err != nil {
		f.Missing[Devices] = fault(
			fmt.Sprintf("the agent answered the first request but not the second: %v", api.Reason(err)),
			"run `caelum doctor` again",
		)
		return
	}
	users := map[uint32]uint32{}
	for _, l := range again.Leases {
		users[l.Job] = l.UID
	}
	kept := steady(f.Agent, *again)
	for _, key := range slices.Sorted(maps.Keys(kept)) {
		in := kept[key]
		uuid, _, _ := strings.Cut(key, "/")
		// The driver does not list fractions, whose GI is below FullGI.
		if _, listed := driver.files[key]; driver.gpus[uuid] && !listed && in.State == api.StateLeased &&
			in.GI >= gpu.FullGI {
			f.Unlisted = append(f.Unlisted, in)
		}
		for _, c := range driver.files[key] {
			if in.State == api.StateLeased {
				c.Job, c.User = in.Job, users[in.Job]
			}
			f.Files = append(f.Files, c)
		}
	}
}
