package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"caelum/internal/cli/doctor"
	"caelum/internal/cli/setup"
	"caelum/internal/config"
	"caelum/internal/slurm"
)

// conversionStep is a step of a conversion, which can be repeated after an interruption at any point. NODES in title
// stands for the nodes.
type conversionStep struct {
	name, title string
	do          func(*converter, context.Context) error
}

// forward and back are the steps of a conversion, and of the way back. The files are written before the daemons
// restart, and both while no job holds GPUs of the nodes.
var (
	forward = []conversionStep{
		{"drain", "drain NODES, and wait until no job holds their GPUs", (*converter).drain},
		{"files", "write Slurm's files, with a copy of the former files in " + statePath, (*converter).write},
		{"slurmctld", "restart slurmctld", (*converter).restart},
		{"slurmd", "wait until slurmd is restarted on every node, and caelumd runs on NODES", (*converter).register},
		{"jobs", "add slices to the requests of waiting jobs (caelum convert-jobs)", (*converter).convert},
		{"resume", "resume NODES", (*converter).resume},
		{"offers", "wait until one of NODES offers slices", (*converter).offer},
		{"doctor", "check slurmctld's host (caelum doctor --controller)", (*converter).check},
	}
	back = []conversionStep{
		{"drain", "drain NODES, and wait until no job holds their GPUs", (*converter).drain},
		{"jobs", "remove the slices from the requests of waiting jobs", (*converter).convertBack},
		{"files", "restore Slurm's files", (*converter).restore},
		{"slurmctld", "restart slurmctld", (*converter).restart},
		{"slurmd", "wait until slurmd is restarted on every node", (*converter).register},
		{"resume", "resume NODES", (*converter).resume},
	}
)

// stepTitle returns the title of a step of a conversion.
func stepTitle(s conversionStep, c *setup.Conversion) string {
	return strings.ReplaceAll(s.title, "NODES", slurm.FoldHosts(c.Nodes))
}

// reverse turns a conversion around. Before slurmctld has read the new files, the jobs are unchanged, and slurmctld may
// be unable to start with these files, so reverse begins with the files. slurmd then need not restart.
func reverse(c *setup.Conversion) {
	switch {
	case c.Undo:
	case c.Step == "drain":
		c.Step = "resume"
	case c.Step == "files", c.Step == "slurmctld":
		c.Step, c.Slurmds = "files", nil
	default:
		c.Step = "drain"
	}
	c.Undo = true
}

// run carries out the remaining steps, and stores the progress before each.
func (c *converter) run(ctx context.Context) error {
	steps := forward
	if c.Undo {
		steps = back
	}
	for c.Step != "" {
		if err := c.save(); err != nil {
			return err
		}
		at := slices.IndexFunc(steps, func(s conversionStep) bool { return s.name == c.Step })
		if at < 0 {
			return fmt.Errorf("%s has the unknown step %q; it belongs to another release of Caelum", c.path, c.Step)
		}
		fmt.Fprintf(c.out, "step %d of %d: %s\n", at+1, len(steps), stepTitle(steps[at], c.Conversion))
		if err := steps[at].do(c, ctx); err != nil {
			return err
		}
		if c.Step = ""; at+1 < len(steps) {
			c.Step = steps[at+1].name
		}
	}
	if !c.Undo {
		fmt.Fprintf(c.out, "done. As a user, try: srun -p %s --gres=gpu:1 nvidia-smi -L\n", c.Partition)
		return c.save()
	}
	c.all = c.all[:len(c.all)-1]
	fmt.Fprintln(c.out, "done. The conversion is taken back")
	return c.save()
}

// wait waits until missing returns no lines. It prints the hint once, and the lines when they change.
func (c *converter) wait(ctx context.Context, hint []string, missing func() ([]string, error)) error {
	for last := ""; ; {
		lines, err := missing()
		if errors.Is(err, slurm.ErrUnreachable) && ctx.Err() == nil {
			lines, err = []string{"slurmctld does not answer; see its log, or interrupt this command and run " +
				"`caelum setup --undo`"}, nil
		}
		if err != nil || len(lines) == 0 {
			return err
		}
		if text := strings.Join(lines, "\n"); text != last {
			c.print(hint...)
			c.print("waiting:")
			c.print(lines...)
			last, hint = text, nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(c.poll):
		}
	}
}

func (c *converter) print(lines ...string) {
	for _, l := range lines {
		fmt.Fprintln(c.out, "   ", printable(l))
	}
}

// waitForNodes waits until missing returns no lines for the nodes.
func (c *converter) waitForNodes(ctx context.Context, hint []string, missing func([]slurm.Node) []string) error {
	return c.wait(ctx, hint, func() ([]string, error) {
		nodes, err := c.ctl.Nodes(ctx)
		if err != nil {
			return nil, err
		}
		return missing(nodes), nil
	})
}

// register waits until every slurmd has been restarted. If systemd runs slurmctld on this host, register restarts it
// once more when it counts what slurmd registered between slurmctld's restart and its own.
func (c *converter) register(ctx context.Context) error {
	again := false
	return c.waitForNodes(ctx, c.Commands(), func(nodes []slurm.Node) []string {
		lines := c.Missing(nodes)
		if !again && setup.RestartAgain(lines) && c.systemctl(ctx, "is-active", "--quiet", "slurmctld") == nil {
			again = true
			if err := c.systemctl(ctx, "restart", "slurmctld"); err != nil {
				return append(lines, err.Error())
			}
			return []string{"slurmctld is restarted again, because it counted the GPUs that the old slurmd registered"}
		}
		return lines
	})
}

func (c *converter) offer(ctx context.Context) error { return c.waitForNodes(ctx, nil, c.Unoffered) }

func (c *converter) drain(ctx context.Context) error {
	nodes, err := c.ctl.Nodes(ctx)
	if err != nil {
		return nodesError(err)
	}
	var list []string
	for _, n := range c.Own(nodes) {
		if !n.Is("DRAIN") {
			list = append(list, n.Name)
		}
	}
	if c.Drained = append(c.Drained, list...); len(list) > 0 {
		if err := errors.Join(c.save(), c.ctl.SetNodeState(ctx, list, "drain", setup.DrainReason)); err != nil {
			return err
		}
	}
	return c.wait(ctx, nil, func() ([]string, error) {
		nodes, err := c.ctl.Nodes(ctx)
		jobs, errJobs := c.ctl.Jobs(ctx)
		return c.Busy(nodes, jobs), errors.Join(err, errJobs)
	})
}

// record stores the daemons' start times before files are written. If slurmctld cannot start with the new files, the
// former times stay.
func (c *converter) record(ctx context.Context) error {
	conf, err := c.ctl.Config(ctx)
	nodes, errNodes := c.ctl.Nodes(ctx)
	if c.Undo && errors.Is(err, slurm.ErrUnreachable) {
		return nil
	}
	if err = errors.Join(err, errNodes); err != nil {
		return err
	}
	if c.Undo && c.Slurmds == nil {
		nodes = nil
	}
	c.Record(conf.Started(), nodes)
	return c.save()
}

func (c *converter) write(ctx context.Context) error {
	var files []setup.Saved
	for _, f := range c.Files {
		wanted, err := pending(f)
		if err != nil {
			return err
		}
		if wanted && !f.Late() {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		return nil
	}
	if err := c.record(ctx); err != nil {
		return err
	}
	return c.writeFiles(files)
}

func (c *converter) writeFiles(files []setup.Saved) error {
	for _, f := range files {
		if err := replaceFile(f.Path, f.New, f); err != nil {
			return err
		}
		c.print(f.Path)
	}
	return nil
}

// leaveTrial waits until no job names the partition of a trial.
func (c *converter) leaveTrial(ctx context.Context) error {
	if !c.Trial {
		return nil
	}
	if _, err := c.ctl.Jobs(ctx); err != nil {
		return nil // slurmctld may be unable to start with the files that restore takes back
	}
	return c.wait(ctx, nil, func() ([]string, error) {
		jobs, err := c.ctl.Jobs(ctx)
		return c.InTrial(jobs), err
	})
}

func (c *converter) restore(ctx context.Context) error {
	if err := c.leaveTrial(ctx); err != nil {
		return err
	}
	if len(c.all) == 1 && c.systemctl(ctx, "disable", "--now", "caelum-watch") != nil {
		c.print("if caelum-watch runs: systemctl disable --now caelum-watch")
	}
	for _, f := range c.Files {
		if text, err := current(f.Path); err == nil && sameContent(text, f.New) {
			if err := c.record(ctx); err != nil {
				return err
			}
			break
		}
	}
	return c.restoreFiles(func(setup.Saved) bool { return true })
}

// restoreFiles restores some of the files. It prints the reverse patch of those with other changes.
func (c *converter) restoreFiles(which func(setup.Saved) bool) error {
	var patches [][]byte
	for i := range c.Files {
		f := &c.Files[i]
		if !which(*f) {
			continue
		}
		patch, err := restoreFile(f)
		switch {
		case err != nil:
			return err
		case patch != nil && f.Old == nil && f.Path == c.Decisions:
			c.print(f.Path + " stays, because it has changed; remove it if you do not install Caelum again")
		case patch != nil:
			patches = append(patches, patch)
		}
	}
	if len(patches) == 0 {
		return nil
	}
	fmt.Fprintf(c.out, "%s", bytes.Join(patches, nil))
	return errors.Join(c.save(), errors.New("couldn't restore the files of the patch above, because they have other "+
		"changes; make the changes of the patch by hand, then run `caelum setup --undo` again"))
}

// restart waits until slurmctld has restarted. It restarts slurmctld if systemd runs it on this host.
func (c *converter) restart(ctx context.Context) error {
	restarted := func() ([]string, error) {
		conf, err := c.ctl.Config(ctx)
		if err != nil || !conf.Started().Equal(c.Slurmctld) {
			return nil, err
		}
		return []string{"slurmctld has not been restarted"}, nil
	}
	hint := []string{"on this host, and with the same files on the hosts of backup controllers:",
		"    systemctl restart slurmctld"}
	byUs := c.systemctl(ctx, "is-active", "--quiet", "slurmctld") == nil
	if lines, _ := restarted(); byUs && lines != nil {
		if err := c.systemctl(ctx, "restart", "slurmctld"); err != nil {
			return err
		}
		hint = nil
	}
	if err := c.wait(ctx, hint, restarted); err != nil || c.Undo {
		return err
	}
	for _, f := range c.Files {
		if wanted, err := pending(f); f.Late() && (wanted || err != nil) {
			if err = errors.Join(err, c.writeFiles([]setup.Saved{f})); err != nil {
				return err
			}
		}
	}
	if !byUs || c.systemctl(ctx, "enable", "--now", "caelum-watch") != nil {
		c.print("so that Caelum learns from the jobs: systemctl enable --now caelum-watch")
	}
	return nil
}

func (c *converter) convert(ctx context.Context) error {
	err := runConvertJobs(ctx, c.out, c.Undo, c.ctl)
	if errors.Is(err, errUnconverted) { // these jobs are held
		c.print(err.Error())
		return nil
	}
	return err
}

func (c *converter) convertBack(ctx context.Context) error {
	if len(c.all) > 1 {
		c.print("they keep their slices, because an earlier conversion remains")
		return nil
	}
	if err := c.restoreFiles(setup.Saved.Late); err != nil {
		return err
	}
	return c.convert(ctx)
}

func (c *converter) resume(ctx context.Context) error {
	nodes, err := c.ctl.Nodes(ctx)
	if list := c.Resumable(nodes); err == nil && len(list) > 0 {
		err = c.ctl.SetNodeState(ctx, list, "resume", "")
	}
	if err == nil {
		c.Drained = nil
	}
	return err
}

func (c *converter) check(ctx context.Context) error {
	cfg, err := config.Load(config.DefaultPath)
	if err != nil {
		return err
	}
	host := doctor.Host{Config: cfg, RunDir: cfg.RunDir, Controller: true, Decisions: c.Decisions}
	found := doctor.Examine(doctor.Read(ctx, host, slurm.New(slurm.Options{})))
	found = slices.DeleteFunc(found, func(f doctor.Finding) bool { return f.Severity == doctor.OK })
	return errors.Join(printFindings(c.out, "slurmctld's host", found), foundErrors("slurmctld's host", found))
}
