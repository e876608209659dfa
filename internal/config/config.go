package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/viper"

	"caelum/internal/core/mig"
	"caelum/internal/core/plan"
	"caelum/internal/core/predict"
	"caelum/internal/slurm"
	"caelum/internal/trust"
)

// Config holds the settings from /etc/caelum/caelum.yaml. keys describes the keys.
type Config struct {
	Node            string         `mapstructure:"node"`
	RunDir          string         `mapstructure:"run_dir"`
	StateDir        string         `mapstructure:"state_dir"`
	DeviceDir       string         `mapstructure:"device_dir"`
	NVMLLibrary     string         `mapstructure:"nvml_library"`
	Profiles        []string       `mapstructure:"profiles"`
	DefaultProfile  string         `mapstructure:"default_profile"`
	Fractions       map[string]int `mapstructure:"fractions"`
	FractionLimits  string         `mapstructure:"fraction_limits"`
	WholeGPUs       string         `mapstructure:"whole_gpus"`
	WholeShare      float64        `mapstructure:"whole_share"`
	Policy          string         `mapstructure:"policy"`
	Sizing          string         `mapstructure:"sizing"`
	PollInterval    time.Duration  `mapstructure:"poll_interval"`
	SampleInterval  time.Duration  `mapstructure:"sample_interval"`
	NotifyPort      int            `mapstructure:"wake_port"`
	NotifyAddress   string         `mapstructure:"wake_address"`
	NotifyKey       string         `mapstructure:"wake_key"`
	TriggerFile     string         `mapstructure:"poke_file"`
	GrowLimit       int            `mapstructure:"grow_limit"`
	Foreign         string         `mapstructure:"foreign_processes"`
	Repo            string         `mapstructure:"repo"`
	Table           string         `mapstructure:"table"`
	AccountingField string         `mapstructure:"accounting_field"`
	Learn           bool           `mapstructure:"learn"`
	Planner         bool           `mapstructure:"planner"`
	Preempt         bool           `mapstructure:"preempt"`
	MovesPerDay     int            `mapstructure:"moves_per_day"`
	MovePartitions  []string       `mapstructure:"move_partitions"`
	MoveCommand     string         `mapstructure:"move_command"`
	Margin          float64        `mapstructure:"margin"`
	PeakQuantile    float64        `mapstructure:"peak_quantile"`
	FirstRun        float64        `mapstructure:"first_run_quantile"`
	Share           bool           `mapstructure:"share"`
	ShareUsers      int            `mapstructure:"share_users"`
	MaxSlowdown     float64        `mapstructure:"max_slowdown"`
	MetricsFile     string         `mapstructure:"metrics_file"`
	MetricsListen   string         `mapstructure:"metrics_listen"`
	JobMapDir       string         `mapstructure:"job_map_dir"`
	DestroyHook     string         `mapstructure:"destroy_hook"`
	LogLevel        string         `mapstructure:"log_level"`
	LogFormat       string         `mapstructure:"log_format"`
}

// These constants are the values of foreign_processes, which determines what the agent does if a process uses another
// job's slice or keeps a released slice open.
const (
	ForeignReport     = "report"           // only report the process in the log and in `caelum status`
	ForeignKillOthers = "kill-other-users" // also end the process if it can harm another user
	ForeignKill       = "kill"             // also end the process if it belongs to the job's user
)

// These constants are the values of fraction_limits, which determines what limits the memory of jobs with fractions.
const (
	LimitsDriver  = "driver"  // the NVIDIA driver, for all programs
	LimitsSoftMig = "softmig" // SoftMig's library, in programs that load it
)

// DefaultPath is the path of the configuration file unless the command line specifies a different path.
const DefaultPath = "/etc/caelum/caelum.yaml"

// Defaults returns the configuration that applies if the file does not exist.
func Defaults() Config {
	c, _ := parse(viper.New()) // the defaults are valid
	return c
}

// Load reads the YAML file at path. The file must exist unless path is DefaultPath, in which case all keys have their
// default values. If the process runs as root, Load rejects a file that other users can change (package trust),
// because it names the NVML library that the process loads. The error is a single line with the file's path and the
// unknown or invalid key.
func Load(path string) (Config, error) {
	return load(path, os.Geteuid())
}

// LoadOwn is like Load, but for a daemon that does not run as root. The file may belong to root or to the daemon's
// user.
func LoadOwn(path string) (Config, error) {
	if _, err := trusted(path, os.Geteuid()); err != nil {
		return Config{}, err
	}
	return Load(path)
}

// trusted returns the resolved path of the file, or an error if the file can be changed by users other than root and
// the users in owners. If path is DefaultPath and does not exist, it returns path.
func trusted(path string, owners ...int) (string, error) {
	resolved, err := trust.Path(path, owners...)
	if path == DefaultPath && errors.Is(err, os.ErrNotExist) {
		return path, nil
	}
	return resolved, err
}

func load(path string, uid int) (Config, error) {
	c, _, err := read(path, uid)
	return c, err
}

// read is like load, but also returns the values of all keys.
func read(path string, uid int) (c Config, v *viper.Viper, err error) {
	file := path
	if uid == 0 {
		if file, err = trusted(path); errors.Is(err, os.ErrNotExist) {
			file = path // ReadInConfig then returns the same error as for other users
		} else if err != nil {
			return c, nil, err
		}
	}
	v = viper.New()
	v.SetConfigFile(file)
	v.SetConfigType("yaml")
	if err := v.ReadInConfig(); err != nil && !(path == DefaultPath && errors.Is(err, os.ErrNotExist)) {
		return c, nil, fmt.Errorf("couldn't read the configuration %s: %s", path, oneLine(err))
	}
	if c, err = parse(v); err != nil {
		return c, nil, fmt.Errorf("%s: %s", path, oneLine(err))
	}
	return c, v, nil
}

// oneLine returns an error's message with each control character replaced by a space.
func oneLine(err error) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, err.Error())
}

func parse(v *viper.Viper) (c Config, err error) {
	known := defaults()
	for _, key := range v.AllKeys() {
		if name, ok := strings.CutPrefix(key, "fractions."); ok && !strings.Contains(name, ".") {
			key = "fractions" // viper lists the keys in the mapping
		}
		if _, ok := known[key]; !ok {
			return c, unknownKey(key)
		}
		if err := checkForm(key, v.Get(key)); err != nil {
			return c, err
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

// unknownKey returns the error for a key that does not exist.
func unknownKey(key string) error {
	return fmt.Errorf("unknown key %q; the keys are %s", key, strings.Join(slices.Sorted(maps.Keys(defaults())), ", "))
}

// FullGPUs returns the rule that determines which GPUs can be full GPUs (whole_gpus).
func (c Config) FullGPUs() (mig.FullGPUs, error) {
	w, err := mig.ParseFullGPUs(c.WholeGPUs)
	if err != nil {
		return w, fmt.Errorf("whole_gpus: %w", err)
	}
	return w, nil
}

// Planning returns the settings that are used to make plans.
func (c Config) Planning() (plan.Settings, error) {
	return plan.ParseSettings(c.Policy, c.Sizing, c.WholeShare)
}

// NoField is the value of accounting_field that disables summaries: if it is set, Caelum neither writes summaries to
// slurmdbd nor reads them from slurmdbd.
const NoField = "none"

// Field returns the field of a job's accounting record that holds the summaries of the job's runs, or an error if
// accounting_field is NoField.
func (c Config) Field() (slurm.AccountingField, error) {
	if c.AccountingField == NoField {
		return "", errors.New("accounting_field is none, so slurmdbd contains no summaries of runs; set " +
			"accounting_field to AdminComment or SystemComment")
	}
	return slurm.AccountingField(c.AccountingField), nil
}

// Site returns the site's settings for predictions.
func (c Config) Site() predict.Site {
	return predict.Site{
		Margin:       c.Margin,
		PeakQuantile: c.PeakQuantile,

		FirstRunQuantile: c.FirstRun,

		Share:       c.Share,
		Users:       c.ShareUsers,
		MaxSlowdown: c.MaxSlowdown,
	}
}
