package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"caelum/internal/trust"
)

// The job map is a directory (job_map_dir) in which monitoring programs look up the job that holds a slice. It contains
// two files for each leased slice. Because each program ignores names that it does not know, one directory serves both
// formats:
//
//	<gpu>.<gi>, or <gpu> without MIG      JOBID        dcgm-exporter's job mapping (README.md of NVIDIA/dcgm-exporter;
//	                                                   since 4.5.3-4.8.2 with GPU instance ids, pull request 602); one
//	                                                   line for each job with a fraction
//	<UUID of the MIG device or full GPU>  JOBID UID    /run/gpustat of jobstats (docs/setup/gpu_node_scripts.md of
//	                                                   PrincetonUniversity/jobstats)
//
// The leases determine the directory's content. Since monitoring must not disturb jobs, errors are only logged, and
// the next update tries again.

// mapName matches the names of the job map's files. UUIDs of other forms are excluded because they may not be valid
// file names: in early drivers, they contain slashes.
var mapName = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?|(MIG|GPU)-[0-9a-fA-F-]+)$`)

// mapMode is the mode of the job map's files, which must be readable by monitoring programs that run as other users.
// The directory's mode can restrict access to them.
const mapMode = 0o644

// jobMap ensures that only one goroutine at a time changes the directory.
type jobMap struct{ mu sync.Mutex }

// mapFailed is the key for rate-limiting the log lines about the job map.
type mapFailed struct{}

// updateJobMap makes the job map agree with the leases: it writes the files that are missing or out of date, and
// removes those that belong to other slices.
func (a *Agent) updateJobMap() {
	if a.cfg.JobMapDir == "" {
		return
	}
	a.jobMap.mu.Lock()
	defer a.jobMap.mu.Unlock()
	// The leases are read under the lock, so that the last update never writes an earlier state.
	if err := writeJobMap(a.cfg.JobMapDir, a.mapFiles()); err != nil && a.mayLog(mapFailed{}) {
		a.log.WithError(err).WithField("job_map_dir", a.cfg.JobMapDir).
			Error("couldn't update the job map; monitoring programs may show the wrong jobs")
	}
}

// mapFiles returns the files of the job map, with their contents, according to the leases.
func (a *Agent) mapFiles() map[string]string {
	a.node.Lock()
	defer a.node.Unlock()
	files, jobs := map[string]string{}, map[string][]uint32{}
	for _, c := range a.node.Cards {
		for _, in := range c.Ours {
			l := a.node.Leases[in.Job]
			if l == nil {
				continue
			}
			name := strconv.Itoa(c.Index)
			if in.GI >= 0 {
				name += "." + strconv.Itoa(in.GI)
			}
			jobs[name] = append(jobs[name], l.Job)
			if mapName.MatchString(in.UUID) {
				files[in.UUID] = fmt.Sprintf("%d %d\n", l.Job, l.UID)
			}
		}
	}
	for name, ids := range jobs {
		slices.Sort(ids)
		for _, id := range ids {
			files[name] += fmt.Sprintf("%d\n", id)
		}
	}
	return files
}

// writeJobMap makes a directory contain exactly the given files. Files whose names do not match mapName are ignored. It
// creates the directory if necessary. If another user can change it or one of its parent directories, writeJobMap
// returns an error and changes nothing.
func writeJobMap(dir string, files map[string]string) error {
	dir = filepath.Clean(dir)
	if err := trust.Directory(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err == nil {
		if err := os.Chmod(dir, 0o755); err != nil { // independent of the umask
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	dir, err := trust.Path(dir, os.Geteuid())
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var all error
	for _, e := range entries {
		name := e.Name()
		stale := mapName.MatchString(name) && files[name] == ""
		if stale || strings.HasPrefix(name, ".new-") { // a temporary file left by an agent that was killed
			all = errors.Join(all, os.Remove(filepath.Join(dir, name)))
		}
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if has, err := os.ReadFile(path); err != nil || string(has) != text {
			all = errors.Join(all, writeFile(path, text, mapMode))
		}
	}
	return all
}
