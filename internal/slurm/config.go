package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config is the current configuration of slurmctld, from slurm.conf and from the cgroup.conf on its host.
type Config struct {
	// Values maps the names in the output of `scontrol show config` to their values, with "" for (null). If a name
	// occurs in both files, the value from slurm.conf is used.
	Values map[string]string
	// AsOf is the time at which slurmctld answered, according to its clock, in whole seconds (_fill_ctld_conf), or zero
	// if unknown.
	AsOf time.Time
}

// Config reads slurmctld's configuration. Errors: ErrUnreachable.
func (c *Client) Config(ctx context.Context) (Config, error) {
	out, err := c.run(ctx, nil, c.scontrol, "show", "config")
	if err != nil {
		return Config{}, err
	}
	return parseConfig(out)
}

// parseConfig parses lines of the form "Name = value", which only administrators can change.
func parseConfig(out string) (Config, error) {
	c := Config{Values: make(map[string]string)}
	for line := range strings.SplitSeq(out, "\n") {
		if at, ok := strings.CutPrefix(line, "Configuration data as of "); ok && c.AsOf.IsZero() {
			c.AsOf, _ = parseTime(strings.TrimSpace(at))
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		key = strings.TrimSpace(key)
		if _, dup := c.Values[key]; !ok || dup {
			continue
		}
		c.Values[key] = orEmpty(strings.TrimSpace(value))
	}
	if c.Values["SLURM_VERSION"] == "" {
		return Config{}, errors.New("`scontrol show config` did not print SLURM_VERSION")
	}
	return c, nil
}

// Version returns slurmctld's release, for example 22.05.8.
func (c Config) Version() string { return c.Values["SLURM_VERSION"] }

// Started returns the time at which slurmctld started, or the zero time if it is unknown.
func (c Config) Started() time.Time {
	t, err := parseTime(c.Values["BOOT_TIME"])
	if err != nil {
		return time.Time{}
	}
	return t
}

// JobMemory returns the time for which slurmctld keeps the record of a finished job, or 0 if it never removes the
// record (MinJobAge, printed as "300 sec").
func (c Config) JobMemory() time.Duration {
	number, _, _ := strings.Cut(c.Values["MinJobAge"], " ")
	seconds, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// Has reports whether a comma-separated list, such as GresTypes or PrologFlags, contains the given word. It ignores
// case.
func (c Config) Has(key, word string) bool {
	return slices.ContainsFunc(strings.Split(c.Values[key], ","), func(w string) bool {
		return strings.EqualFold(strings.TrimSpace(w), word)
	})
}

// Controllers returns the addresses of slurmctld's hosts, beginning with the primary host.
func (c Config) Controllers() (all []string) {
	for k := 0; ; k++ {
		host, ok := c.Values[fmt.Sprintf("SlurmctldHost[%d]", k)] // name(address), or just the address
		if !ok {
			return all
		}
		name, address, _ := strings.Cut(strings.TrimSuffix(host, ")"), "(")
		all = append(all, cmp.Or(address, name))
	}
}

// RunsOn reports whether slurm.conf names the given host as one of slurmctld's hosts. It ignores the domains.
func (c Config) RunsOn(host string) bool {
	host, _, _ = strings.Cut(host, ".")
	for k := 0; ; k++ {
		name, ok := c.Values[fmt.Sprintf("SlurmctldHost[%d]", k)]
		if !ok {
			return false
		}
		name, _, _ = strings.Cut(name, "(")
		if name, _, _ = strings.Cut(name, "."); name != "" && strings.EqualFold(name, host) {
			return true
		}
	}
}

// SlurmUser returns slurmctld's user id; ok is false if the configuration does not contain it.
func (c Config) SlurmUser() (uid uint32, ok bool) {
	_, id, _ := strings.Cut(strings.TrimSuffix(c.Values["SlurmUser"], ")"), "(") // e.g. slurm(64030)
	n, err := strconv.ParseUint(id, 10, 32)
	return uint32(n), err == nil
}

// HidesJobs reports whether Slurm hides some or all of other users' jobs (22.05 job_mgr.c: PrivateData=jobs, or an MCS
// plugin with the parameter privatedata). Other values of PrivateData do not affect squeue's output.
func (c Config) HidesJobs() bool {
	return c.Has("PrivateData", "jobs") || c.Has("MCSParameters", "privatedata")
}

// JobCgroup returns the name of a job's cgroup v2: the SLUID since 26.05 (cgroup_v2.c:1932 in 26.05.3), unless
// cgroup.conf sets CgroupJobIdPaths=yes. 25.11 has SLUIDs, but does not use them there. sluid is SLURM_JOB_SLUID, or
// "".
func (c Config) JobCgroup(job uint32, sluid string) string {
	release, err := c.Release()
	if err == nil && release.from(26, 5) && sluid != "" && !strings.EqualFold(c.Values["CgroupJobIdPaths"], "yes") {
		return sluid
	}
	return fmt.Sprintf("job_%d", job)
}

// RelativeIndex reports whether Slurm numbers the devices in CUDA_VISIBLE_DEVICES relative to the step. Slurm does so
// if task/cgroup constrains devices. RelativeIndex assumes that the nodes have the same cgroup.conf as slurmctld's
// host.
func (c Config) RelativeIndex() bool {
	return (c.Has("TaskPlugin", "task/cgroup") || c.Has("TaskPlugin", "cgroup")) &&
		strings.EqualFold(c.Values["ConstrainDevices"], "yes")
}
