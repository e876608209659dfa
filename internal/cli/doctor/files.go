package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"caelum/internal/config"
	"caelum/internal/trust"
)

// Files describes incorrect owners and modes among the files on this host that root's processes read, load or write.
type Files struct {
	// Untrusted holds the errors from package trust, each about a path that users other than root can change.
	Untrusted []string
	// Wrong lists the agent's files whose owner or mode differs from what the agent sets.
	Wrong []WrongFile
	// Unit is the DevicePolicy of the loaded caelumd.service, or empty if systemd has not loaded this unit.
	Unit string
}

// WrongFile is one of the agent's files whose owner or mode has changed. Right is the mode that the agent sets.
type WrongFile struct {
	Path        string
	Owner       uint32
	Mode, Right fs.FileMode
}

// agentFiles returns the paths of the files and directories that the agent creates, with their modes. Root must own
// them. Some of them may not exist.
func agentFiles(cfg config.Config, runDir string) map[string]fs.FileMode {
	return map[string]fs.FileMode{
		runDir:                                   0o755,
		filepath.Join(runDir, "jobs"):            0o700,
		filepath.Join(runDir, "caelumd.sock"):    0o666,
		filepath.Join(runDir, "root.sock"):       0o600,
		filepath.Join(runDir, "devices"):         0o600,
		cfg.StateDir:                             0o700,
		filepath.Join(cfg.StateDir, "ledger.db"): 0o600,
		cfg.Repo:                                 0o600,
		cfg.MetricsFile:                          0o644,
		filepath.Join(cfg.DeviceDir, "caelum"):   0o755,
	}
}

func (f *Facts) readOwners(host Host) {
	paths := []string{filepath.Dir(config.DefaultPath)}
	if object := f.Plugin.Args["job_object"]; object != "" {
		paths = append(paths, object)
	}
	if host.Config.NVMLLibrary != "" && !host.Controller {
		paths = append(paths, host.Config.NVMLLibrary)
	}
	for _, path := range paths {
		if _, err := trust.Path(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.Owners.Untrusted = append(f.Owners.Untrusted, err.Error())
		}
	}
	if host.Controller {
		return
	}
	for path, right := range agentFiles(host.Config, host.RunDir) {
		info, err := os.Stat(path)
		if err != nil {
			continue // the file does not exist yet, or this user has no access to its directory
		}
		owner := info.Sys().(*syscall.Stat_t).Uid
		if owner != 0 || info.Mode().Perm() != right {
			f.Owners.Wrong = append(f.Owners.Wrong, WrongFile{path, owner, info.Mode().Perm(), right})
		}
	}
}

// devicePolicy returns the DevicePolicy of the loaded caelumd.service, or an empty string if systemd has not loaded
// this unit. Because the value in the shipped unit differs from systemd's default, it shows whether systemd has loaded
// that unit's restrictions.
func devicePolicy(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	args := []string{"show", "--property=LoadState", "--property=DevicePolicy", "caelumd.service"}
	out, err := exec.CommandContext(ctx, "systemctl", args...).Output()
	if err != nil || !strings.Contains(string(out), "LoadState=loaded") {
		return ""
	}
	for line := range strings.Lines(string(out)) {
		if policy, ok := strings.CutPrefix(strings.TrimSpace(line), "DevicePolicy="); ok {
			return policy
		}
	}
	return ""
}

// difference describes the wrong owner, the wrong mode, or both.
func (w WrongFile) difference() string {
	var all []string
	if w.Owner != 0 {
		all = append(all, fmt.Sprintf("owner is uid %d instead of uid 0", w.Owner))
	}
	if w.Mode != w.Right {
		all = append(all, fmt.Sprintf("mode is %04o instead of %04o", w.Mode, w.Right))
	}
	return strings.Join(all, ", and its ")
}

func owners(f *Facts) []Finding {
	var found []Finding
	for _, refusal := range f.Owners.Untrusted {
		reason, next, _ := strings.Cut(refusal, "; ")
		reason = strings.TrimPrefix(reason, "couldn't use ")
		if strings.Contains(next, "chown") {
			next += "`; if the watcher writes the decision table, move the table to /var/lib/caelum-watch and " +
				"create a symbolic link to it at `/etc/caelum/decisions"
		}
		found = append(found, fault(
			reason+": root's processes read or load this path, so a user who can change it can become root",
			"`"+next+"`",
		))
	}
	for _, w := range f.Owners.Wrong {
		found = append(found, fault(
			fmt.Sprintf(
				"%s: its %s: other users may have access to the agent's data, or Caelum's programs may lack access",
				w.Path, w.difference(),
			),
			fmt.Sprintf(
				"run `chown root %s && chmod %04o %[1]s`, and find the program that changed the owner or the mode",
				w.Path, w.Right,
			),
		))
	}
	if f.Owners.Unit != "" && f.Owners.Unit != "closed" {
		found = append(found, warning(
			"caelumd.service has DevicePolicy="+f.Owners.Unit+": the agent runs without the restrictions of the "+
				"shipped unit",
			"install etc/caelumd.service of this release, then run `systemctl daemon-reload` and `systemctl restart "+
				"caelumd`; make local changes only with `systemctl edit caelumd`",
		))
	}
	return found
}
