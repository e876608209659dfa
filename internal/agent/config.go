package agent

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/viper"

	"caelum/internal/api"
	"caelum/internal/gpu"
	"caelum/internal/place"
	"caelum/internal/predict"
	"caelum/internal/repo"
	"caelum/internal/slurm"
	"caelum/internal/trust"
)

// Config holds the settings of /etc/caelum/caelum.yaml. The comments in that file document the keys.
type Config struct {
	Node            string        `mapstructure:"node"`
	RunDir          string        `mapstructure:"run_dir"`
	StateDir        string        `mapstructure:"state_dir"`
	DeviceDir       string        `mapstructure:"device_dir"`
	NVMLLibrary     string        `mapstructure:"nvml_library"`
	Profiles        []string      `mapstructure:"profiles"`
	DefaultProfile  string        `mapstructure:"default_profile"`
	Policy          string        `mapstructure:"policy"`
	PollInterval    time.Duration `mapstructure:"poll_interval"`
	SampleInterval  time.Duration `mapstructure:"sample_interval"`
	WakePort        int           `mapstructure:"wake_port"`
	WakeAddress     string        `mapstructure:"wake_address"`
	WakeKey         string        `mapstructure:"wake_key"`
	PokeFile        string        `mapstructure:"poke_file"`
	Foreign         string        `mapstructure:"foreign_processes"`
	Repo            string        `mapstructure:"repo"`
	Table           string        `mapstructure:"table"`
	AccountingField string        `mapstructure:"accounting_field"`
	Learn           bool          `mapstructure:"learn"`
	Margin          float64       `mapstructure:"margin"`
	Share           bool          `mapstructure:"share"`
	ShareUsers      int           `mapstructure:"share_users"`
	MaxSlowdown     float64       `mapstructure:"max_slowdown"`
	LogLevel        string        `mapstructure:"log_level"`
	LogFormat       string        `mapstructure:"log_format"`

	procDir string         // /proc, except in tests
	procs   *gpu.Processes // reads /proc, except in tests
}

// DefaultConfig is the path of the configuration file unless a command names another file.
const DefaultConfig = "/etc/caelum/caelum.yaml"

// Defaults returns the configuration without a file.
func Defaults() Config {
	c, _ := parseConfig(viper.New()) // the defaults are valid
	return c
}

// defaults returns the values of the keys that the file does not set. It contains every known key.
func defaults() map[string]any {
	host, _ := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	return map[string]any{
		"node":             host,
		"run_dir":          api.DefaultRunDir,
		"state_dir":        "/var/lib/caelum",
		"device_dir":       "/dev",
		"nvml_library":     "",
		"profiles":         []string{},
		"default_profile":  "",
		"policy":           place.DefaultPolicy,
		"poll_interval":    "15s",
		"sample_interval":  "1s",
		"wake_port":        0,
		"wake_address":     "",
		"wake_key":         "/etc/caelum/wake.key",
		"poke_file":        "/run/caelum-watch/poke",
		"repo":             repo.DefaultPath,
		"table":            "/etc/caelum/decisions",
		"accounting_field": string(slurm.AdminComment),
		"learn":            false,
		"margin":           predict.DefaultSite.Margin,
		"share":            predict.DefaultSite.Share,
		"share_users":      predict.DefaultSite.Users,
		"max_slowdown":     predict.DefaultSite.MaxSlowdown,
		"log_level":        "info",
		"log_format":       "text",

		"foreign_processes": foreignKillOthers,
	}
}

// LoadConfig reads the YAML file at path. If path is DefaultConfig and the file does not exist, all keys have their
// defaults. Any other file must exist. If the process runs as root, only root may be able to change the file (package
// trust), because the file names the NVML library that the process loads. The error is one line that names the file and
// the unknown or invalid key.
func LoadConfig(path string) (Config, error) {
	return loadConfig(path, os.Geteuid())
}

// LoadOwnConfig is like LoadConfig, for a daemon that does not run as root: root and the daemon's user may own the
// file.
func LoadOwnConfig(path string) (Config, error) {
	if _, err := trusted(path, os.Geteuid()); err != nil {
		return Config{}, err
	}
	return LoadConfig(path)
}

// trusted returns the resolved path, or path itself if path is DefaultConfig and the file does not exist. It returns an
// error if other users than root and owners can change the file.
func trusted(path string, owners ...int) (string, error) {
	resolved, err := trust.Path(path, owners...)
	if path == DefaultConfig && errors.Is(err, os.ErrNotExist) {
		return path, nil
	}
	return resolved, err
}

func loadConfig(path string, uid int) (Config, error) {
	file := path
	if uid == 0 {
		var err error
		if file, err = trusted(path); errors.Is(err, os.ErrNotExist) {
			file = path // the error below is the same for all users
		} else if err != nil {
			return Config{}, err
		}
	}
	v := viper.New()
	v.SetConfigFile(file)
	v.SetConfigType("yaml")
	if err := v.ReadInConfig(); err != nil && !(path == DefaultConfig && errors.Is(err, os.ErrNotExist)) {
		return Config{}, fmt.Errorf("couldn't read the configuration %s: %s", path, oneLine(err.Error()))
	}
	c, err := parseConfig(v)
	if err != nil {
		return c, fmt.Errorf("%s: %s", path, oneLine(err.Error()))
	}
	return c, nil
}

func parseConfig(v *viper.Viper) (c Config, err error) {
	known := defaults()
	for _, key := range v.AllKeys() {
		if _, ok := known[key]; !ok {
			return c, fmt.Errorf(
				"unknown key %q; the keys are %s",
				key,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "),
			)
		}
	}
	for key, value := range known {
		v.SetDefault(key, value)
	}
	if err := v.UnmarshalExact(&c); err != nil {
		return c, err
	}
	return c, c.check()
}

// NoField is the value of accounting_field with which the agent neither writes into slurmdbd nor learns from it.
const NoField = "none"

// Field returns the field of a job's accounting record that holds the summaries of its runs. It returns an error if
// accounting_field is NoField.
func (c Config) Field() (slurm.AccountingField, error) {
	if c.AccountingField == NoField {
		return "", errors.New("accounting_field is none: runs are neither written into slurmdbd nor read from it")
	}
	return slurm.AccountingField(c.AccountingField), nil
}

// Site returns the site's settings for predictions.
func (c Config) Site() predict.Site {
	return predict.Site{Margin: c.Margin, Share: c.Share, Users: c.ShareUsers, MaxSlowdown: c.MaxSlowdown}
}

func (c Config) check() error {
	if c.Node == "" {
		return errors.New("node: is empty and the host has no name; set it to this node's NodeName in slurm.conf")
	}
	if !slurm.ValidNode(c.Node) {
		return fmt.Errorf("node: %q is not the name of one node; set it to this node's NodeName in slurm.conf", c.Node)
	}
	for key, dir := range map[string]string{
		"run_dir":    c.RunDir,
		"state_dir":  c.StateDir,
		"device_dir": c.DeviceDir,
		"repo":       c.Repo,
		"table":      c.Table,
		"wake_key":   c.WakeKey,
	} {
		if !strings.HasPrefix(dir, "/") {
			return fmt.Errorf("%s: %q is not an absolute path", key, dir)
		}
	}
	if _, err := place.ByName(c.Policy); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	if c.PollInterval < 100*time.Millisecond || c.PollInterval > time.Hour {
		return fmt.Errorf("poll_interval: %v is not between 100ms and 1h (write it like 15s)", c.PollInterval)
	}
	if s := c.SampleInterval; s != 0 && (s < 200*time.Millisecond || s > time.Minute) {
		return fmt.Errorf(
			"sample_interval: %v is not between 200ms and 1m (write it like 1s; 0 turns sampling off)",
			s,
		)
	}
	if c.WakePort < 0 || c.WakePort > 65535 {
		return fmt.Errorf("wake_port: %d is not a UDP port (0: no watcher)", c.WakePort)
	}
	if c.WakeAddress != "" && net.ParseIP(c.WakeAddress) == nil {
		return fmt.Errorf(
			"wake_address: %q is not an IP address (omit the key to use all addresses of this node)",
			c.WakeAddress,
		)
	}
	if !strings.HasPrefix(c.PokeFile, "/") {
		return fmt.Errorf("poke_file: %q is not an absolute path", c.PokeFile)
	}
	if f := c.Foreign; !slices.Contains([]string{foreignReport, foreignKillOthers, foreignKill}, f) {
		return fmt.Errorf("foreign_processes: %q is not report, kill-other-users or kill", f)
	}
	if f := slurm.AccountingField(c.AccountingField); f != NoField && !slices.Contains(slurm.AccountingFields, f) {
		return fmt.Errorf("accounting_field: %q is not AdminComment, SystemComment or none", f)
	}
	if !(c.Margin >= 0 && c.Margin <= 10) {
		return fmt.Errorf("margin: %v is not between 0 and 10 (0.1: 10 %% more than the measured peak)", c.Margin)
	}
	if c.ShareUsers < 1 || c.ShareUsers > 1000 {
		return fmt.Errorf(
			"share_users: %d is not between 1 and 1000 (3: a script's size is shared once three users have run it)",
			c.ShareUsers,
		)
	}
	if c.MaxSlowdown != 0 && !(c.MaxSlowdown >= 1 && c.MaxSlowdown <= 1000) {
		return fmt.Errorf(
			"max_slowdown: %v is not between 1 and 1000 (1.5: up to 50 %% longer than on the whole GPU; "+
				"0: only memory counts)",
			c.MaxSlowdown,
		)
	}
	if !slices.Contains([]string{"debug", "info", "warning", "error"}, c.LogLevel) {
		return fmt.Errorf("log_level: %q is not debug, info, warning or error", c.LogLevel)
	}
	if !slices.Contains([]string{"text", "json"}, c.LogFormat) {
		return fmt.Errorf("log_format: %q is not text or json", c.LogFormat)
	}
	if c.DefaultProfile != "" && len(c.Profiles) > 0 && !slices.Contains(c.Profiles, c.DefaultProfile) {
		return fmt.Errorf(
			"default_profile: %q is not among profiles (%s)",
			c.DefaultProfile,
			strings.Join(c.Profiles, ", "),
		)
	}
	return nil
}
