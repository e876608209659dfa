package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/state"
	"caelum/internal/slurm"
)

// The agent writes a lease file once the lease is in the ledger, and removes the file before it removes the lease from
// the ledger. A lease file whose lease is missing from the ledger therefore means that the ledger was lost or is too
// old: its file was removed or emptied, or SQLite silently dropped the end of a damaged journal. The agent then
// restores the lease from the lease file and the instances on the GPUs, before it uses any instance that is idle
// according to the ledger.
//
// A lease file contains only what a task needs. The agent reads the rest of a restored lease from slurmctld
// (completeLeases), because it decides whether the job can grow, how long its slices are used, and what the job's run
// teaches.
//
// If the ledger is lost, the agent cannot distinguish its own idle instances from those of other programs. All of them
// are foreign until root adopts them (adopt.go).

// recoverLeases restores the leases that are missing from the ledger, and the sizes of fractions that have grown since.
// If lease files contradict each other, it returns an error, because only the administrator can resolve this.
func (a *Agent) recoverLeases() error {
	lost, grown, err := a.lostLeases()
	if err == nil {
		err = a.dropOutdated(lost, grown)
	}
	if err != nil {
		return err
	}
	a.keepFractions()
	if len(lost) > 0 {
		a.makeRoom() // for fractions; the starts in an outdated ledger may leave none
		// The starts of fractions are multiples of their sizes, so all find room if the largest choose first.
		slices.SortStableFunc(lost, func(x, y api.Lease) int { return cmp.Compare(a.units(y), a.units(x)) })
		for k := range lost {
			a.keepLost(&lost[k])
		}
		found := a.foundByUUID()
		for _, l := range lost {
			if err := a.recoverLease(l, found); err != nil {
				return err
			}
		}
	}
	for _, g := range grown {
		a.growAgain(g)
	}
	return nil
}

// lostLeases returns the leases of the lease files that are missing from the ledger, and the fractions of other leases
// that are larger in the files.
func (a *Agent) lostLeases() (lost []api.Lease, grown []*state.Growth, err error) {
	files, err := os.ReadDir(filepath.Join(a.cfg.RunDir, "jobs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("couldn't list the lease files: %w", err)
	}
	for _, f := range files {
		id, err := strconv.ParseUint(f.Name(), 10, 32)
		if err != nil {
			continue // the temporary file of an agent that was killed
		}
		l, err := readLeaseFile(a.leaseFile(uint32(id)), uint32(id))
		if err != nil {
			a.log.WithError(err).
				WithField("job", id).
				Errorf("couldn't read a lease file; if job %d is not running on this node, remove %s",
					id, a.leaseFile(uint32(id)))
			continue
		}
		switch had := a.node.Leases[l.Job]; {
		case had == nil || had.Restart < l.Restart:
			lost = append(lost, l)
		case had.Restart == l.Restart:
			grown = append(grown, a.grownInFile(l)...)
		}
	}
	return lost, grown, nil
}

// spotted is an instance and the GPU on which it was found.
type spotted struct {
	card *state.Card
	gpu.Instance
}

// foundByUUID returns the instances on all usable GPUs, by UUID.
func (a *Agent) foundByUUID() map[string]spotted {
	found := map[string]spotted{}
	for g, c := range a.node.Cards {
		if !a.node.Usable(c) {
			continue
		}
		list, err := a.hw.Instances(g)
		if err != nil {
			a.log.WithError(err).WithField("gpu", g).
				Error("couldn't list the GPU's instances while restoring lost leases")
		}
		for _, in := range list {
			found[in.UUID] = spotted{c, in}
		}
	}
	return found
}

// recoverLease restores one lease with the slices that still exist on the GPUs.
func (a *Agent) recoverLease(l api.Lease, found map[string]spotted) error {
	log := a.log.WithField("job", l.Job)
	var held []*state.Instance
	wanted := l.Slices
	l.Slices = nil
	for _, s := range wanted {
		in, ok := found[s.UUID]
		p, known := -1, false
		if ok {
			p, known = in.card.Model.Placement(in.Profile, in.Start)
		}
		if !known {
			log.WithField("uuid", s.UUID).
				Error("the job's lease file names a slice that was not found on any GPU; the job will fail")
			continue
		}
		if old := replaced(in.card, p, in.Instance); old != nil && old.Job != 0 && old.Job != l.Job {
			// If the other job has no lease file, its lease was released, but the ledger has lost the record of the
			// release. The compute instance may have been re-created since then.
			if _, err := os.Lstat(a.leaseFile(old.Job)); err == nil {
				return fmt.Errorf(
					"the lease files of jobs %d and %d name the same slice %s: drain %s, wait until no job is running "+
						"on the node, remove %s and start caelumd again",
					old.Job,
					l.Job,
					s.UUID,
					a.cfg.Node,
					a.leaseFile(l.Job),
				)
			}
			if err := a.ledger.Release(old.Job); err != nil {
				return err
			}
			a.node.DropLease(old.Job)
		}
		model := in.card.Model
		l.Slices = append(l.Slices, api.Slice{
			Slot: s.Slot, GPU: slices.Index(a.node.Cards, in.card), Profile: in.Profile, Start: in.Start, Size: in.Size,
			MemoryMiB: model.Profiles[model.Placements[p].Profile].MemoryMiB, UUID: in.UUID,
		})
		made := in.card.NewInstance(p, in.Instance)
		made.Job = l.Job
		in.card.Ours[p] = made
		if in.Fraction() {
			in.card.Users[l.Job] = l.UID
		}
		a.node.Former[state.Minors{GPU: made.GPU, GI: made.GI}] = l.UID
		held = append(held, made)
	}
	l.Recovered = true
	if u, err := user.LookupId(strconv.FormatUint(uint64(l.UID), 10)); err == nil {
		l.User = u.Username
	}
	if err := a.ledger.Recover(l, ledgerInstances(held)); err != nil {
		return err
	}
	a.node.Leases[l.Job] = &l
	log.WithField("restart", l.Restart).
		WithField("slices", len(l.Slices)).
		Warn("the ledger had lost this job's lease; restored it from the lease file")
	return nil
}

// completeLeases completes the restored leases.
func (a *Agent) completeLeases(ctx context.Context) error {
	a.node.Lock()
	var ids []uint32
	for id, l := range a.node.Leases {
		if l.Recovered {
			ids = append(ids, id)
		}
	}
	a.node.Unlock()
	var all error
	for _, id := range ids {
		if unlock := a.jobs.tryLock(id); unlock != nil { // otherwise, the job is ending, and its epilog does the same
			all = errors.Join(all, a.completeLease(ctx, id))
			unlock()
		}
	}
	return all
}

// completeLease reads from slurmctld what a restored lease lacks. It changes neither a complete lease nor one whose job
// slurmctld does not know or describes unclearly. The caller holds the job's lock.
func (a *Agent) completeLease(ctx context.Context, id uint32) error {
	a.node.Lock()
	old := a.node.Leases[id]
	a.node.Unlock()
	if old == nil || !old.Recovered {
		return nil
	}
	job, err := a.ctl.Job(ctx, id)
	switch {
	case slurm.ClassOf(err) == slurm.Unclear:
		return nil
	case err != nil:
		return fmt.Errorf("couldn't complete the restored lease of job %d: %w", id, err)
	case job.Holds() && job.Restarts > old.Restart:
		return nil // the lease belongs to an earlier run, and will be released
	}
	t := attempt{lease: *old}
	t.setJob(job)
	l := t.lease
	l.Recovered = false
	// After the job has ended, slurmctld no longer shows the allocation, and wants returns nothing.
	if wants, err := a.node.Wants(job, 0); err == nil && len(wants) > 0 && len(l.Slices) > 0 {
		l.Expected = expectedOn(l, wants, l.Slices[0].Profile)
		l.Slices = slices.Clone(l.Slices)
		for k := range l.Slices {
			l.Slices[k].AdvertisedAs = advertisedAs(wants, l.Slices[k].Profile)
		}
	}
	if err := a.ledger.Complete(l); err != nil {
		return err
	}
	a.node.Lock()
	a.node.Leases[id] = &l
	a.node.Version++
	a.node.Unlock()
	a.usage.Describe(l)
	return nil
}

// readLeaseFile parses a lease file that writeLeaseFile wrote. Unlike the plugin, it accepts any content in the lines
// that only tasks use.
func readLeaseFile(path string, job uint32) (l api.Lease, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return l, err
	}
	if !info.Mode().IsRegular() {
		return l, fmt.Errorf("%s: not a regular file", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return l, err
	}
	body, whole := strings.CutSuffix(string(text), "\nend\n")
	l.Since = info.ModTime().Unix()
	for i, line := range strings.Split(body, "\n") {
		key, value, _ := strings.Cut(line, " ")
		var n uint64
		switch key {
		case "caelum-lease":
			whole = whole && i == 0 && value == "1"
		case "job":
			n, err = strconv.ParseUint(value, 10, 32)
			l.Job = uint32(n)
		case "restart":
			n, err = strconv.ParseUint(value, 10, 16)
			l.Restart = int(n)
		case "uid":
			n, err = strconv.ParseUint(value, 10, 32)
			l.UID = uint32(n)
		case "cgroup":
			l.Cgroup.Inode, err = strconv.ParseUint(value, 10, 64)
		case "error":
			l.Error = value
		case "slot":
			slot, uuid, _ := strings.Cut(value, " ")
			n, err = strconv.ParseUint(slot, 10, 16)
			l.Slots = append(l.Slots, int(n))
			if uuid != "-" {
				l.Slices = append(l.Slices, api.Slice{Slot: int(n), UUID: uuid})
			}
		}
		if err != nil || !whole {
			return l, fmt.Errorf("%s: the lease is incomplete or malformed (line %d)", path, i+1)
		}
	}
	if l.Job != job {
		return l, fmt.Errorf("%s: the file contains the lease of job %d", path, l.Job)
	}
	slices.SortFunc(l.Slices, func(x, y api.Slice) int { return cmp.Compare(x.Slot, y.Slot) })
	return l, nil
}
