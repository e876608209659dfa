package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/viper"

	"caelum/internal/core/mig"
	"caelum/internal/slurm"
)

// checkForm returns an error if a value in the file cannot be converted to the type of its key. It also rejects a time
// without a unit, which viper would read as nanoseconds.
func checkForm(key string, value any) error {
	v := viper.New()
	v.Set(key, value)
	err := v.UnmarshalExact(&Config{})
	text := fmt.Sprint(value)
	if _, none := strconv.ParseFloat(text, 64); none == nil && text != "0" && strings.HasPrefix(form(key), aTime) {
		err = errors.New("the unit is missing")
	}
	if err == nil {
		return nil
	}
	switch value := value.(type) {
	case string:
		text = strconv.Quote(value)
	case map[string]any:
		flow, _ := json.Marshal(value) // a value that checkForm rejects for its type, and the reader recognizes
		text = string(flow)
	case []any:
		text = "a list"
	}
	return fmt.Errorf("%s: %s is not %s", key, text, form(key))
}

// check returns an error for the first invalid value, or nil if all values are valid. The error names the key, the
// value and the valid values.
func (c Config) check() error {
	for _, check := range []func() error{
		c.checkNode, c.checkPaths, c.checkPlanning, c.checkIntervals, c.checkWatcher, c.checkUsage, c.checkMetrics,
		c.checkLog,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkNode checks the node's name.
func (c Config) checkNode() error {
	if c.Node == "" {
		return errors.New("node: the value is empty and the host has no name; set node to this node's NodeName in " +
			"slurm.conf")
	}
	if !slurm.ValidNode(c.Node) {
		return fmt.Errorf("node: %q is not the name of one node; set node to this node's NodeName in "+
			"slurm.conf", c.Node)
	}
	return nil
}

// checkPaths checks that the paths are absolute.
func (c Config) checkPaths() error {
	for _, path := range []struct{ key, value string }{
		{"run_dir", c.RunDir},
		{"state_dir", c.StateDir},
		{"device_dir", c.DeviceDir},
		{"repo", c.Repo},
		{"table", c.Table},
		{"wake_key", c.NotifyKey},
		{"poke_file", c.TriggerFile},
	} {
		if !strings.HasPrefix(path.value, "/") {
			return fmt.Errorf("%s: %q is not an absolute path", path.key, path.value)
		}
	}
	for _, path := range []struct{ key, value, off string }{
		{"job_map_dir", c.JobMapDir, "no job map"},
		{"destroy_hook", c.DestroyHook, "no hook"},
		{"move_command", c.MoveCommand, "no command"},
	} {
		if path.value != "" && !strings.HasPrefix(path.value, "/") {
			return fmt.Errorf(`%s: %q is neither an absolute path nor "" (%s)`, path.key, path.value, path.off)
		}
	}
	switch dir := filepath.Clean(c.JobMapDir); dir {
	case filepath.Clean(c.RunDir), filepath.Join(c.RunDir, "jobs"), filepath.Clean(c.StateDir):
		return fmt.Errorf("job_map_dir: %s contains the agent's own files, which the agent would delete; "+
			"specify another directory, for example %s", dir, filepath.Join(c.RunDir, "jobmap"))
	}
	return nil
}

// checkPlanning checks the placement policy, the sizing and the profiles.
func (c Config) checkPlanning() error {
	if _, err := c.Planning(); err != nil {
		return err
	}
	if c.DefaultProfile != "" && !mig.Offers(c.Profiles, c.DefaultProfile) {
		return fmt.Errorf(
			"default_profile: %[1]q is not listed in profiles (%[2]s)",
			c.DefaultProfile, strings.Join(c.Profiles, ", "))
	}
	return c.checkFractions()
}

// gpuType matches the types that mig.GRESType returns.
var gpuType = regexp.MustCompile(`^[a-z0-9_]+$`)

// checkFractions checks the types of the GPUs whose memory is divided, and the numbers of units.
func (c Config) checkFractions() error {
	for _, name := range slices.Sorted(maps.Keys(c.Fractions)) {
		if k := c.Fractions[name]; k < mig.MinFractions || k > mig.MaxFractions {
			return fmt.Errorf("fractions: %s has %d units, but the number must be between %d and %d "+
				"(example: {l40s: 4})", name, k, mig.MinFractions, mig.MaxFractions)
		}
		if !gpuType.MatchString(name) {
			return fmt.Errorf("fractions: %q is not a GPU type of gres.conf (example: {l40s: 4})", name)
		}
	}
	switch {
	case c.FractionLimits != LimitsDriver && c.FractionLimits != LimitsSoftMig:
		return fmt.Errorf("fraction_limits: %q is not driver or softmig", c.FractionLimits)
	case len(c.Fractions) > 0 && c.SampleInterval == 0:
		return errors.New("fractions: only samples find programs that evade the memory limits; set sample_interval " +
			"above 0")
	}
	return nil
}

// checkIntervals checks the interval between polls of slurmctld and the interval between samples of a slice.
func (c Config) checkIntervals() error {
	if c.PollInterval < 100*time.Millisecond || c.PollInterval > time.Hour {
		return fmt.Errorf("poll_interval: %v is not between 100ms and 1h (example: 15s)", c.PollInterval)
	}
	if s := c.SampleInterval; s != 0 && (s < 200*time.Millisecond || s > time.Minute) {
		return fmt.Errorf(
			"sample_interval: %v is neither 0 (no samples) nor between 200ms and 1m (example: 1s)", s)
	}
	return nil
}

// checkWatcher checks the port and the address on which the agent receives notifications.
func (c Config) checkWatcher() error {
	if c.NotifyPort < 0 || c.NotifyPort > 65535 {
		return fmt.Errorf("wake_port: %d is neither a UDP port nor 0 (no notifications)", c.NotifyPort)
	}
	if c.NotifyAddress != "" && net.ParseIP(c.NotifyAddress) == nil {
		return fmt.Errorf(
			"wake_address: %q is not an IP address (omit the key to use all addresses of this node)", c.NotifyAddress)
	}
	return c.checkMoves()
}

// checkMoves checks the settings for moves of running jobs.
func (c Config) checkMoves() error {
	if c.MovesPerDay < 0 || c.MovesPerDay > 1440 {
		return fmt.Errorf("moves_per_day: %d is not between 0 (no job is moved) and 1440 (one move a minute)",
			c.MovesPerDay)
	}
	if c.MovesPerDay > 0 && !c.Planner {
		return fmt.Errorf("moves_per_day: %d has no effect without planner: true; set both, or neither", c.MovesPerDay)
	}
	for _, p := range c.MovePartitions {
		if p == "" || strings.ContainsAny(p, ", \t\n") {
			return fmt.Errorf("move_partitions: %q is not the name of one partition (example: [batch, long])", p)
		}
	}
	if c.MovesPerDay == 0 && (len(c.MovePartitions) > 0 || c.MoveCommand != "") {
		return errors.New("moves_per_day: 0 turns moves off, so move_partitions and move_command have no effect; " +
			"set moves_per_day, or remove them")
	}
	return nil
}

// checkUsage checks the settings for foreign processes, for accounting and for predictions.
func (c Config) checkUsage() error {
	if f := c.Foreign; !slices.Contains([]string{ForeignReport, ForeignKillOthers, ForeignKill}, f) {
		return fmt.Errorf("foreign_processes: %q is not report, kill-other-users or kill", f)
	}
	if f := slurm.AccountingField(c.AccountingField); f != NoField && !slices.Contains(slurm.AccountingFields, f) {
		return fmt.Errorf("accounting_field: %q is not AdminComment, SystemComment or none", f)
	}
	if c.GrowLimit < 0 || c.GrowLimit > 100 {
		return fmt.Errorf("grow_limit: %d is not between 0 (no job grows) and 100", c.GrowLimit)
	}
	if !(c.Margin >= 0 && c.Margin <= 10) {
		return fmt.Errorf("margin: %v is not between 0 and 10 (0.1 means 10%% more than the observed peak memory)",
			c.Margin)
	}
	for name, q := range map[string]float64{"peak_quantile": c.PeakQuantile, "first_run_quantile": c.FirstRun} {
		if q != 0 && !(q >= 0.5 && q <= 0.999) {
			return fmt.Errorf("%s: %v is not between 0.5 and 0.999 (0.95: at most 5%% of the runs are expected "+
				"to exceed the predicted memory; 0: off)", name, q)
		}
	}
	if c.ShareUsers < 1 || c.ShareUsers > 1000 {
		return fmt.Errorf("share_users: %d is not between 1 and 1000 "+
			"(3 means that other users get a script's profile after three users have run it)", c.ShareUsers)
	}
	if c.MaxSlowdown != 0 && !(c.MaxSlowdown >= 1 && c.MaxSlowdown <= 1000) {
		return fmt.Errorf("max_slowdown: %v is neither 0 (only the memory determines the profile) nor between 1 and "+
			"1000 (1.5 means a run time up to 50%% longer than on the whole GPU)", c.MaxSlowdown)
	}
	return nil
}

// checkMetrics checks the path of the metrics file and the address of the metrics port.
func (c Config) checkMetrics() error {
	if f := c.MetricsFile; f != "" && !(strings.HasPrefix(f, "/") && strings.HasSuffix(f, ".prom")) {
		return fmt.Errorf(`metrics_file: %q is neither an absolute path that ends in .prom (node_exporter ignores `+
			`other files) nor "" (no file)`, f)
	}
	if c.MetricsListen == "" {
		return nil
	}
	if at, err := netip.ParseAddrPort(c.MetricsListen); err != nil || at.Port() == 0 {
		return fmt.Errorf(`metrics_listen: %q is neither an IP address with a port (example: 127.0.0.1:9488) nor "" `+
			`(no port)`, c.MetricsListen)
	}
	return nil
}

// checkLog checks the level and the format of the log.
func (c Config) checkLog() error {
	if !slices.Contains([]string{"debug", "info", "warning", "error"}, c.LogLevel) {
		return fmt.Errorf("log_level: %q is not debug, info, warning or error", c.LogLevel)
	}
	if !slices.Contains([]string{"text", "json"}, c.LogFormat) {
		return fmt.Errorf("log_format: %q is not text or json", c.LogFormat)
	}
	return nil
}
