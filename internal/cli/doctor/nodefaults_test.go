package doctor

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"caelum/internal/config"
	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/gpu/gputest"
)

// reporter is an agent that only reports a status.
type reporter struct {
	api.Handler
	status api.Status
}

func (r reporter) Status(context.Context) (*api.Status, error) { return &r.status, nil }

// nodeHost returns a host with a healthy agent, an emulated A100, a plugin, and the device files of all slots. change
// modifies the agent's status.
func nodeHost(t *testing.T, change func(*api.Status)) Host {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "slurm.conf"), "plugindir = "+dir+"/lib # the plugins\n")
	write(t, filepath.Join(dir, "plugstack.conf"), "required spank_caelum.so run_dir="+dir+"/run\n")
	write(t, filepath.Join(dir, "lib", objectName), "")
	buildPlugin(t, filepath.Join(dir, "lib", pluginName))
	t.Setenv("SLURM_CONF", filepath.Join(dir, "slurm.conf"))

	node := gputest.New(t, "A100-40GB", 1)
	t.Setenv("NVML_EMULATOR_STATE", node.State)
	status := healthy().Agent
	status.PublishError = "slurmctld cannot be reached"
	for _, slot := range status.GPUs[0].Slots {
		write(t, filepath.Join(dir, "dev", "caelum", "slot"+string(rune('0'+slot))), "")
	}
	if change != nil {
		change(&status)
	}
	run := filepath.Join(dir, "run")
	if err := os.Mkdir(run, 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := api.Listen(run, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := api.NewServer(reporter{status: status})
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return Host{RunDir: run, Config: config.Config{
		StateDir: dir + "/state", Repo: dir + "/repo.db", DeviceDir: dir + "/dev",
		NVMLLibrary: filepath.Join(node.Build(), "libnvidia-ml.so.1"),
	}}
}

// TestNodeFaults tests that NodeFaults finds no fault on a healthy node although slurmctld is down, and exactly one
// fault on each other node.
func TestNodeFaults(t *testing.T) {
	only := func(host Host, want string) {
		t.Helper()
		found := NodeFaults(t.Context(), host)
		if want == "" && len(found) > 0 ||
			want != "" && (len(found) != 1 || !strings.Contains(found[0].Check+": "+found[0].Text, want)) {
			t.Errorf("%+v, want %q", found, want)
		}
	}
	instance := func(in api.Instance) func(*api.Status) {
		return func(s *api.Status) { s.GPUs[0].Instances = []api.Instance{in} }
	}
	other := func(problem string) func(*api.Status) {
		return func(s *api.Status) { s.GPUs = append(s.GPUs, api.GPU{Index: 1, UUID: "GPU-2", Problem: problem}) }
	}
	for _, c := range []struct {
		want   string
		change func(*api.Status)
	}{
		{"", nil},
		{"", other("MIG mode is off; turn it on with `nvidia-smi -i 1 -mig 1`")},
		{"", instance(api.Instance{State: api.StateStuck, Note: "process 17 of uid 20001 (python)"})},
		{"", instance(api.Instance{State: api.StateStuck})},
		{"instances: ", instance(api.Instance{State: api.StateForeign})},
		{"gpus: GPU 1: the GPU is lost", other(gpu.Lost)},
		{"gpus: GPU 1: withdrawn after Xid 119 (GSP does not answer)", other(gpu.Withdrawn(1, 119))},
		{"gpus: the agent manages no GPU", func(s *api.Status) { s.GPUs[0].Problem = "this GPU does not support MIG" }},
		{"ledger: job 9 has lost its slice MIG-9", func(s *api.Status) {
			s.Leases = append(s.Leases, api.Lease{Job: 9, Slices: []api.Slice{{UUID: "MIG-9"}}})
		}},
		{"slot files: ", func(s *api.Status) { s.GPUs[0].Slots = append(s.GPUs[0].Slots, 9) }},
	} {
		only(nodeHost(t, c.change), c.want)
	}
	host := nodeHost(t, nil)
	if err := os.Remove(filepath.Join(filepath.Dir(host.RunDir), "lib", objectName)); err != nil {
		t.Fatal(err)
	}
	only(host, "plugin: "+filepath.Dir(host.RunDir)+"/lib/"+objectName+", which the plugin loads, does not exist")
	if os.Geteuid() == 0 {
		host = nodeHost(t, nil)
		host.Config.NVMLLibrary = "/none/libnvidia-ml.so.1"
		only(host, "device files: the driver cannot be read")
	}
}

// TestNodeFaultsSilentAgent tests that NodeFaults returns when its context ends if the agent accepts connections but
// never answers.
func TestNodeFaultsSilentAgent(t *testing.T) {
	host := nodeHost(t, nil)
	host.RunDir = t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(host.RunDir, api.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if found := NodeFaults(ctx, host); len(found) == 0 || found[0].Check != string(Agent) {
		t.Errorf("%+v, want a fault of the agent", found)
	}
}

// TestReadLocalPlugin tests that the plugin is not checked if slurm.conf does not show where it is.
func TestReadLocalPlugin(t *testing.T) {
	dir := t.TempDir()
	conf, stack := filepath.Join(dir, "slurm.conf"), filepath.Join(dir, "plugstack.conf")
	read := func() *Facts {
		f := &Facts{Missing: map[Source]Finding{}}
		f.readLocalPlugin([]string{"", filepath.Join(dir, "none"), conf})
		return f
	}
	t.Setenv("SLURM_CONF", "")
	if f := read(); f.Missing[Plugstack].Severity != Info {
		t.Errorf("without slurm.conf: %+v", f.Missing)
	}
	write(t, conf, "PlugStackConfig="+stack+"\n")
	if f := read(); f.Missing[Plugstack].Severity != Error {
		t.Errorf("without plugstack.conf: %+v", f.Missing)
	}
	write(t, conf, "PlugStackConfig="+stack+"\n Include more.conf\n")
	if f := read(); f.Missing[Plugstack].Severity != Info {
		t.Errorf("with an included file: %+v", f.Missing)
	}
	write(t, stack, "required caelum/"+pluginName+"\n")
	if f := read(); f.Missing[Plugstack].Severity != Info || !f.Plugin.Named {
		t.Errorf("without PluginDir: %+v, %+v", f.Missing, f.Plugin)
	}
	write(t, conf, "PlugStackConfig="+stack+"\nPluginDir=\""+dir+"\"\n")
	if f := read(); f.lacks(Plugstack) || len(plugin(f)) != 1 {
		t.Errorf("without the plugin's file: %+v, %+v", f.Missing, plugin(f))
	}
}

// TestReadFractions checks that the driver's GPUs are compared with the types in the fractions key.
func TestReadFractions(t *testing.T) {
	node := gputest.New(t, "L40S-48GB", 1)
	for name, want := range map[string]int{"l40s": 0, "l40": 1} {
		f := &Facts{}
		f.readFractions(config.Config{
			NVMLLibrary: filepath.Join(node.Build(), "libnvidia-ml.so.1"), DeviceDir: node.Dev,
			Fractions: map[string]int{name: 4},
		})
		if len(f.UnusedTypes) != want || !strings.Contains(f.NoFractions, "is older than R615") {
			t.Errorf("%s: %q, %q", name, f.UnusedTypes, f.NoFractions)
		}
	}
}
