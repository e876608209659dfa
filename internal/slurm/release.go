package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Release is a release of Slurm, such as 23.11. Only its methods know in which release a behaviour changed.
// docs/slurm-releases.md lists every fact about Slurm that Caelum relies on, including those that hold in all
// releases and differences that Caelum handles without checking the release.
type Release struct{ Year, Month int }

// OldestRelease and NewestRelease are the oldest and newest releases whose source code was compared with the facts in
// docs/slurm-releases.md.
var (
	OldestRelease = Release{22, 5}
	NewestRelease = Release{26, 5}
)

// ParseRelease parses a version such as 22.05.8, 24.11.0-0rc1 or "slurm-wlm 22.05.8" (the output of -V).
func ParseRelease(version string) (Release, error) {
	words := strings.Fields(version)
	if len(words) == 0 {
		return Release{}, errors.New("the version is empty")
	}
	parts := strings.SplitN(words[len(words)-1], ".", 3)
	if len(parts) < 2 {
		return Release{}, fmt.Errorf("version %.40q does not contain a release number such as 22.05", version)
	}
	year, err1 := strconv.ParseUint(parts[0], 10, 7)
	month, err2 := strconv.ParseUint(parts[1], 10, 4)
	if err1 != nil || err2 != nil {
		return Release{}, fmt.Errorf("version %.40q does not contain a release number such as 22.05", version)
	}
	return Release{int(year), int(month)}, nil
}

// String returns the release in the form that Slurm uses, for example 22.05.
func (r Release) String() string { return fmt.Sprintf("%02d.%02d", r.Year, r.Month) }

// Compare returns -1 if r is older than o, 1 if r is newer, and 0 if r and o are the same release.
func (r Release) Compare(o Release) int {
	return cmp.Or(cmp.Compare(r.Year, o.Year), cmp.Compare(r.Month, o.Month))
}

func (r Release) from(year, month int) bool { return r.Compare(Release{year, month}) >= 0 }

// ReadsExtraAsJSON reports whether slurmctld rejects a node update whose Extra is not JSON if SchedulerParameters
// includes extra_constraints. A rejected update does not change the node's GRES either (update_node in node_mgr.c,
// since 23.11).
func (r Release) ReadsExtraAsJSON() bool { return r.from(23, 11) }

// RestartsSlurmd reports whether `scontrol reconfigure` makes slurmd wait for running prologs and then start a new
// process (_try_to_reconfig in slurmd.c, since 23.11).
func (r Release) RestartsSlurmd() bool { return r.from(23, 11) }

// WaitsForPrologs reports whether slurmd waits for running prologs at least as long as their time limit (rpc_wait in
// slurmd.c, since 24.11).
func (r Release) WaitsForPrologs() bool { return r.from(24, 11) }

// KeepsCase reports whether `sacctmgr modify job` preserves capital letters (job_functions.c, since 23.02).
func (r Release) KeepsCase() bool { return r.from(23, 2) }

// ReplacesTypes reports whether an update of a waiting job's GRES replaces the types in the request. Up to 23.02,
// slurmctld keeps types that the update leaves out (_update_job in job_mgr.c).
func (r Release) ReplacesTypes() bool { return r.from(23, 11) }

// Release returns slurmctld's release.
func (c Config) Release() (Release, error) { return ParseRelease(c.Version()) }

// ReplacesTypes reports whether slurmctld is known to replace the types in the request of a waiting job.
func (c Config) ReplacesTypes() bool {
	release, err := c.Release()
	return err == nil && release.ReplacesTypes()
}

// releaseOf returns the release of a command on this host, which may differ from slurmctld's release.
func (c *Client) releaseOf(ctx context.Context, command string) (Release, error) {
	out, err := c.run(ctx, nil, command, "-V")
	if err != nil {
		return Release{}, err
	}
	return ParseRelease(out)
}
