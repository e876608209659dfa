package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"caelum/internal/node/jobcgroup"
)

// SoftMig limits the device memory of jobs by files that the library of SoftMig reads (config_file.c in
// ualberta-rcg/SoftMig, commit 0f6d1aa). The site preloads the library into all programs. The library finds a job's
// file by the job ID in the environment, reads it once in each process, and refuses allocations above the limit. A
// program that does not load the library, or changes its environment, has no limit. A job has one limit for all its
// GPUs. The zero value has the paths of a real node.
type SoftMig struct {
	Dir     string // contains the files, by default softMigDir
	Preload string // lists the libraries that all programs load, by default /etc/ld.so.preload
}

// softMigDir is the path in the library.
const softMigDir = "/var/run/softmig"

// softMigText is the content of a file. The library ignores the second line.
const softMigText = "CUDA_DEVICE_MEMORY_LIMIT=%dM\n# written by caelumd\n"

// softMigNew is the pattern of temporary names.
const softMigNew = ".new-*"

// softMigJob matches a cgroup whose path contains the job's ID. To add up the memory of a job's processes, also the
// library looks for this name (process_utils.c).
var softMigJob = regexp.MustCompile(`^job_([0-9]{1,10})$`)

// LimitsProblem implements Limiter.
func (s SoftMig) LimitsProblem() string {
	path := cmp.Or(s.Preload, "/etc/ld.so.preload")
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		for _, library := range strings.Fields(strings.ReplaceAll(line, ":", " ")) {
			if !strings.Contains(strings.ToLower(filepath.Base(library)), "softmig") {
				continue
			}
			if _, err := os.Stat(library); err != nil {
				return fmt.Sprintf("%s names a library that cannot be used: %v; install SoftMig, and write the "+
					"library's absolute path into this file", path, err)
			}
			return ""
		}
	}
	return fmt.Sprintf("%s does not name SoftMig's library, so programs do not load it; add the absolute path of "+
		"libsoftmig.so, and restart slurmd and caelumd", path)
}

// file returns the path of the file for a job's cgroup, or "" if the cgroup's name does not contain the job's ID.
func (s SoftMig) file(cgroup string) string {
	job := softMigJob.FindStringSubmatch(filepath.Base(cgroup))
	if job == nil {
		return ""
	}
	return filepath.Join(cmp.Or(s.Dir, softMigDir), job[1]+".conf")
}

// SetLimit implements MemoryLimits. The limit becomes that of all GPUs of the job, for programs that start later.
func (s SoftMig) SetLimit(_ int, cgroup string, bytes uint64) error {
	path := s.file(cgroup)
	if path == "" && bytes != NoLimit {
		return fmt.Errorf("SoftMig cannot find the memory limit of %s, whose name is not job_ID; set "+
			"CgroupJobIdPaths=yes in cgroup.conf, and restart slurmctld and every slurmd", cgroup)
	}
	if bytes == NoLimit {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // also if path is empty
			return fmt.Errorf("couldn't remove SoftMig's memory limit: %w", err)
		}
		return nil
	}
	if err := writeForAll(path, fmt.Sprintf(softMigText, bytes>>20)); err != nil {
		return fmt.Errorf("couldn't write SoftMig's memory limit: %w; compare caelumd.service and "+
			"tmpfiles.d/caelum.conf with the shipped files", err)
	}
	return nil
}

// writeForAll atomically replaces a file that all users can read, whatever the umask. It creates the directory.
func writeForAll(path, text string) error {
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return errors.Join(err, fmt.Errorf("%s is not a directory", dir))
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, softMigNew)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Limit implements MemoryLimits. The memory in use is always 0, because SoftMig does not report it.
func (s SoftMig) Limit(_ int, cgroup string) (limit, used uint64, err error) {
	if mib := limitIn(s.file(cgroup)); mib > 0 {
		return mib << 20, 0, nil
	}
	return NoLimit, 0, nil
}

// limitIn returns the limit in a file in MiB, or 0 if it is not a file that an agent has written. The library does not
// follow links either.
func limitIn(path string) (mib uint64) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o644 {
		return 0
	}
	text, _ := os.ReadFile(path)
	fmt.Sscanf(string(text), softMigText, &mib)
	if string(text) != fmt.Sprintf(softMigText, mib) || mib > NoLimit>>20 {
		return 0
	}
	return mib
}

// RemoveOthers removes the files of jobs whose cgroup is not in keep, if an agent wrote them, and incomplete files. The
// caller must ensure that no other agent is writing files.
func (s SoftMig) RemoveOthers(keep []jobcgroup.Group) (errs error) {
	dir := cmp.Or(s.Dir, softMigDir)
	left, _ := filepath.Glob(filepath.Join(dir, softMigNew))
	files, _ := filepath.Glob(filepath.Join(dir, "*.conf"))
	for _, path := range files {
		used := slices.ContainsFunc(keep, func(g jobcgroup.Group) bool { return s.file(g.Path) == path })
		if !used && limitIn(path) > 0 {
			left = append(left, path)
		}
	}
	for _, path := range left {
		errs = errors.Join(errs, os.Remove(path))
	}
	return errs
}
