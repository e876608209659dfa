package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"caelum/internal/cli/doctor"
	"caelum/internal/cli/setup"
	"caelum/internal/slurm"
)

// statePath is the file with the conversions, in a directory that belongs to root. Only root can open lockPath.
const statePath, lockPath = "/etc/caelum/setup.json", "/run/caelum-setup.lock"

// siteControl is the part of slurm.Client that a conversion uses.
type siteControl interface {
	jobs
	Nodes(ctx context.Context) ([]slurm.Node, error)
	Jobs(ctx context.Context) ([]slurm.Job, error)
	Config(ctx context.Context) (slurm.Config, error)
	SetNodeState(ctx context.Context, nodes []string, state, reason string) error
}

// converter carries out the steps of the last conversion.
type converter struct {
	*conversions
	*setup.Conversion
	ctl       siteControl
	out       io.Writer
	poll      time.Duration // the time between two requests while it waits
	systemctl func(ctx context.Context, args ...string) error
}

// runConversion starts or continues a conversion, or takes the last one back.
func runConversion(out, stderr io.Writer, o setupOptions) error {
	if os.Geteuid() != 0 {
		return errors.New("couldn't convert the site: only root can change Slurm's files; run the command as root")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	all, lock, err := openConversions(statePath, lockPath)
	if err != nil {
		return err
	}
	defer lock.Close()
	c := &converter{conversions: all, ctl: slurm.New(slurm.Options{}), out: out, poll: 3 * time.Second,
		systemctl: systemctl}
	last := all.last()
	switch {
	case o.undo && last == nil:
		return fmt.Errorf("there is nothing to undo: %s does not exist", statePath)
	case o.undo:
		reverse(last)
	case last == nil || last.Step == "" && !last.Trial && !last.Undo:
		if err := c.begin(ctx, stderr, o); err != nil || all.last() == last {
			return err
		}
	default:
		if err := continues(last, o.nodes); err != nil {
			return err
		}
	}
	c.Conversion = all.last()
	if err = c.run(ctx); ctx.Err() != nil {
		return errors.New("interrupted; run the same command again to continue")
	}
	return err
}

// continues returns an error unless --apply with the given --nodes continues the last conversion.
func continues(last *setup.Conversion, nodes string) error {
	of := slurm.FoldHosts(last.Nodes)
	hosts, _ := slurm.ExpandHosts(nodes)
	switch {
	case last.Undo:
		return fmt.Errorf("the conversion of %s is being taken back; continue this with `caelum setup --undo`", of)
	case last.Step == "":
		return fmt.Errorf("%s is converted for a trial; take this back with `caelum setup --undo` first", of)
	case nodes != "" && !slices.Equal(hosts, last.Nodes):
		return fmt.Errorf("the conversion of %s is incomplete; continue it with `caelum setup --apply` without "+
			"options, or take it back with `caelum setup --undo`", of)
	}
	return nil
}

func systemctl(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return err
}

// begin plans a conversion, checks that it is possible, and stores it. It stores none if there is nothing to convert.
func (c *converter) begin(ctx context.Context, stderr io.Writer, o setupOptions) error {
	r, files, err := o.merge(stderr)
	if err != nil {
		return err
	}
	hosts, _ := slurm.ExpandHosts(r.Nodes) // Merge has expanded them
	next := setup.Conversion{Nodes: hosts, Partition: r.Partition, Trial: r.Trial, Decisions: r.Decisions,
		Step: forward[0].name, GPUs: map[string]int{}}
	if next.Files, err = saved(files); err != nil {
		return err
	}
	if len(next.Files) == 0 {
		_, err := fmt.Fprintln(c.out, "the files already contain Caelum's lines; there is nothing to convert")
		return err
	}
	nodes, err := c.ctl.Nodes(ctx)
	conf, errConf := c.ctl.Config(ctx)
	if err = errors.Join(err, errConf); err != nil {
		return nodesError(err)
	}
	if problems := unready(next, r.JobSubmit, conf, nodes); len(problems) > 0 {
		return fmt.Errorf("couldn't begin, and changed nothing: %s", strings.Join(problems, "; "))
	}
	for _, n := range next.Own(nodes) {
		if !n.Managed() {
			next.GPUs[n.Name] = n.Gres.Total("gpu")
		} else if len(next.Nodes) > 1 { // converted earlier
			next.Nodes = slices.DeleteFunc(next.Nodes, func(name string) bool { return name == n.Name })
		}
	}
	c.all = append(c.all, next)
	return c.save()
}

// unready returns the reasons why a conversion cannot begin.
func unready(c setup.Conversion, jobSubmit string, conf slurm.Config, nodes []slurm.Node) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if host, _ := os.Hostname(); !conf.RunsOn(host) {
		add("slurmctld does not run on this host; run the command on %s", strings.Join(conf.Controllers(), " or "))
	}
	if _, err := os.Stat(jobSubmit); err != nil {
		add("%s does not exist; install the package caelum-controller, or set --job-submit", jobSubmit)
	}
	dirs := conf.Values["PluginDir"]
	if !slices.ContainsFunc(doctor.PluginsIn(filepath.SplitList(dirs)), func(p doctor.InstalledPlugin) bool {
		built, err := slurm.ParseRelease(p.Slurm)
		own, _ := conf.Release()
		return err == nil && built == own
	}) {
		add("PluginDir (%s) has no spank_caelum.so for Slurm %s; install the package caelum-spank here and on every "+
			"host that reads plugstack.conf", dirs, conf.Version())
	}
	own := c.Own(nodes)
	if len(own) < len(c.Nodes) {
		add("slurmctld does not know all nodes in --nodes; check the names")
	}
	for _, n := range own {
		if n.Is("DOWN") || n.Is("NOT_RESPONDING") || n.Is("POWERED_DOWN") {
			add("%s is %s; start it, or leave it out of --nodes", n.Name, strings.Join(n.States, "+"))
		}
	}
	return problems
}
