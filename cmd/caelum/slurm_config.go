package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"caelum/internal/config"
	"caelum/internal/core/mig"
	"caelum/internal/node/gpu"
	"caelum/internal/node/inventory"
	"caelum/internal/node/jobcgroup"
)

//go:embed slurm_config.tmpl
var slurmConfigText string

type slurmConfigOptions struct {
	nodes     string
	partition string
	catalogue int
	cpus      int
	memory    int
	section   string
}

// sections lists the values of --section in output order. "nodes" is part of slurm.conf.
var sections = []string{"slurm.conf", "nodes", "gres.conf", "plugstack.conf", "decisions"}

func newSlurmConfig(g *globals) *cobra.Command {
	var o slurmConfigOptions
	cmd := &cobra.Command{
		Use:   "slurm-config",
		Short: "Print the configuration that Slurm needs for nodes like this one",
		Long: `slurm-config reads the profiles of this node's GPUs from NVML and prints the lines for slurm.conf,
gres.conf, plugstack.conf and the decision table. It changes no files. Run it once for each kind of
GPU node. With --json, it prints only the slots, the profiles and the slice counts.`,
		Example: `  caelum slurm-config --nodes 'gpu[01-16]' --partition gpu --catalogue 4
  caelum slurm-config --nodes 'gpu[01-16]' --section gres.conf`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSlurmConfig(cmd.OutOrStdout(), g, o) },
	}
	host, _ := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	f := cmd.Flags()
	f.StringVar(&o.nodes, "nodes", host, "NodeName expression for the nodes with the same GPUs")
	f.StringVar(&o.partition, "partition", "gpu", "partition whose jobs get slices")
	f.IntVar(&o.catalogue, "catalogue", 2,
		"number of catalogue nodes; job_submit.lua holds jobs that request more nodes")
	f.IntVar(&o.cpus, "cpus", runtime.NumCPU(), "CPUs of a catalogue node, which must equal the CPUs of the largest "+
		"node")
	f.IntVar(&o.memory, "memory", memoryMiB(),
		"RealMemory of a catalogue node in MiB, which must equal the memory of the largest node")
	f.StringVar(&o.section, "section", "",
		"print only this section, without its heading: "+strings.Join(sections, ", "))
	return cmd
}

func runSlurmConfig(w io.Writer, g *globals, o slurmConfigOptions) error {
	if o.section != "" && !slices.Contains(sections, o.section) {
		return usageError{
			fmt.Errorf("unknown section %q; the sections are %s", o.section, strings.Join(sections, ", ")),
		}
	}
	cfg, err := config.Load(g.config)
	if err != nil {
		return err
	}
	inv, err := readInventory(cfg)
	if err != nil {
		return err
	}
	if g.json {
		return printJSON(w, inv)
	}
	return renderSlurmConfig(w, o, cfg, inv)
}

// readInventory reads this node's inventory from NVML. For each GPU that the agent cannot manage, it prints a line to
// standard error.
func readInventory(cfg config.Config) (inventory.Inventory, error) {
	hw, err := gpu.OpenNVML(cfg.NVMLLibrary, gpu.Caps{Dev: cfg.DeviceDir, Proc: "/proc"})
	if err != nil {
		return inventory.Inventory{}, err
	}
	defer hw.Close()
	fullGPUs, err := cfg.FullGPUs()
	if err != nil {
		return inventory.Inventory{}, err
	}
	limits, problem := gpu.Limiter(hw), ""
	if cfg.FractionLimits == config.LimitsSoftMig {
		limits = gpu.SoftMig{}
	}
	if _, err := gpu.OpenJobGroups(limits, jobcgroup.Options{Node: cfg.Node}, "/proc"); err != nil {
		problem = err.Error()
	}
	divided := gpu.WithFractions(hw, gpu.FractionOptions{Units: cfg.Fractions, Problem: problem})
	inv, err := inventory.Read(divided, cfg.Profiles, fullGPUs)
	if err != nil {
		return inv, err
	}
	for _, p := range inv.Problems {
		fmt.Fprintln(os.Stderr, "caelum: omitted: "+p)
	}
	if len(inv.Slots) == 0 {
		return inv, fmt.Errorf("the agent can manage none of this node's GPUs; run `nvidia-smi -L` to see the GPUs, " +
			"and enable MIG mode")
	}
	return inv, nil
}

func renderSlurmConfig(w io.Writer, o slurmConfigOptions, cfg config.Config, inv inventory.Inventory) error {
	funcs := template.FuncMap{"gres": gresOf, "tres": tresOf, "slots": slotLines}
	t, err := template.New("").Funcs(funcs).Parse(slurmConfigText)
	if err != nil {
		return err
	}
	def, full := cfg.DefaultProfile, ""
	for _, p := range inv.Most {
		if p.Type == mig.Full {
			full = p.Type
		} else if cfg.DefaultProfile == "" && !mig.IsFraction(p.Type) {
			def = p.Type
		}
	}
	if def == "" {
		def = full
	}
	at := slices.IndexFunc(inv.Most, func(p inventory.Offered) bool { return p.Type == def })
	if at < 0 {
		return fmt.Errorf("default_profile: no GPU on this node offers %q; choose one of the offered profiles", def)
	}
	data := map[string]any{
		"Nodes": o.nodes, "Partition": o.partition, "Catalogue": o.catalogue, "CPUs": o.cpus, "Memory": o.memory,
		"Inventory": inv, "Default": def, "Full": full, "Whole": cmp.Or(inv.Most[at].Whole, full),
		"Dev": cfg.DeviceDir, "RunDir": cfg.RunDir,
	}
	for i, name := range sections {
		if o.section != "" && o.section != name {
			continue
		}
		if o.section == "" {
			if i > 0 {
				fmt.Fprintln(w)
			}
			if err := t.ExecuteTemplate(w, "heading "+name, data); err != nil {
				return err
			}
		}
		if err := t.ExecuteTemplate(w, name, data); err != nil {
			return err
		}
	}
	return nil
}

// gresOf returns the value of Gres= for a node. For a catalogue node, the counts are the maximum counts of the
// profiles. For a real node, all slices are counted as closed until the node's agent publishes its offers.
func gresOf(inv inventory.Inventory, catalogue bool) string {
	var parts []string
	for _, s := range inv.Slots {
		parts = append(parts, fmt.Sprintf("gpu:%s:%d", s.Type, s.Count))
	}
	for _, p := range inv.Most {
		n := 0
		if catalogue {
			n = p.Count
		}
		parts = append(parts, fmt.Sprintf("mig:%s:%d", p.Type, n))
	}
	if !catalogue {
		parts = append(parts, fmt.Sprintf("mig:closed:%d", inv.Total))
	}
	return strings.Join(parts, ",")
}

// tresOf returns the value of AccountingStorageTRES.
func tresOf(inv inventory.Inventory) string {
	parts := []string{"gres/gpu", "gres/mig"}
	for _, p := range inv.Most {
		parts = append(parts, "gres/mig:"+p.Type)
	}
	return strings.Join(parts, ",")
}

// slotLines returns the gres.conf lines for the slots. Each line describes consecutive GPUs of the same Type.
func slotLines(nodes, dev string, inv inventory.Inventory) string {
	var b strings.Builder
	first := 0
	for _, s := range inv.Slots {
		fmt.Fprintf(
			&b,
			"NodeName=%s Name=gpu Type=%s File=%s/caelum/slot[%d-%d] Flags=nvidia_gpu_env\n",
			nodes, s.Type, dev, first, first+s.Count-1,
		)
		first += s.Count
	}
	return b.String()
}

// memoryMiB returns this machine's memory in MiB, or 1 if it is unknown.
func memoryMiB() int {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 1
	}
	return int(info.Totalram * uint64(info.Unit) >> 20)
}
