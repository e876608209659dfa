package slurm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config is slurmctld's running configuration: slurm.conf, and cgroup.conf as slurmctld's host has it.
type Config struct {
	// Values are by the names that `scontrol show config` prints, "" where it prints (null). A name that stands in both
	// files has slurm.conf's value.
	Values map[string]string
	// AsOf is slurmctld's clock when it answered, in whole seconds (_fill_ctld_conf, 22.05 to 25.05). Zero if unknown.
	AsOf time.Time
}

// parseConfig reads lines of "Name   = value", which are an admin's, not a user's.
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
		return Config{}, errors.New("scontrol shows a configuration without SLURM_VERSION")
	}
	return c, nil
}

// Version is Slurm's release: 22.05.8.
func (c Config) Version() string { return c.Values["SLURM_VERSION"] }

// Has reports whether a comma-separated value, such as GresTypes or PrologFlags, has the word, in any case.
func (c Config) Has(key, word string) bool {
	return slices.ContainsFunc(strings.Split(c.Values[key], ","), func(w string) bool {
		return strings.EqualFold(strings.TrimSpace(w), word)
	})
}

// Controllers are the addresses of slurmctld's hosts, the first first, as nodes know them.
func (c Config) Controllers() (all []string) {
	for k := 0; ; k++ {
		host, ok := c.Values[fmt.Sprintf("SlurmctldHost[%d]", k)] // name(address), or a name that is both
		if !ok {
			return all
		}
		name, address, _ := strings.Cut(strings.TrimSuffix(host, ")"), "(")
		all = append(all, cmp.Or(address, name))
	}
}

// SlurmUser is the user id of slurmctld; false if the configuration does not have it.
func (c Config) SlurmUser() (uid uint32, ok bool) {
	_, id, _ := strings.Cut(strings.TrimSuffix(c.Values["SlurmUser"], ")"), "(") // slurm(64030)
	n, err := strconv.ParseUint(id, 10, 32)
	return uint32(n), err == nil
}

// HidesJobs reports whether users see nothing of other users' jobs, or not of all of them (22.05 job_mgr.c:
// PrivateData=jobs, or a MCS plugin whose parameters have privatedata). The other words of PrivateData do not change
// what squeue shows.
func (c Config) HidesJobs() bool {
	return c.Has("PrivateData", "jobs") || c.Has("MCSParameters", "privatedata")
}

// RelativeIndex reports whether Slurm numbers CUDA_VISIBLE_DEVICES within the step: it does where task/cgroup
// constrains devices. cgroup.conf is read on slurmctld's host; the nodes are taken to have the same.
func (c Config) RelativeIndex() bool {
	return (c.Has("TaskPlugin", "task/cgroup") || c.Has("TaskPlugin", "cgroup")) &&
		strings.EqualFold(c.Values["ConstrainDevices"], "yes")
}
