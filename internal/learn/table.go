package learn

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"caelum/internal/decisions"
	"caelum/internal/mig"
	"caelum/internal/predict"
	"caelum/internal/repo"
	"caelum/internal/trust"
)

// What stands below the marker is written anew each time; what stands above it is the admin's.
const (
	marker = "# What stands below this line is learned from earlier runs (caelum repo decisions): it is written anew each time. Above it, write what you like.\n"
	head   = "caelum-decisions 1 "
)

// table is a decision table, cut at the marker.
type table struct {
	generation uint64
	own        string // the admin's lines, without the first
	learned    string
	// those that may be given, and their memory in MiB as the table has it; 0: it has none
	profiles map[string]float64
	gpuTypes []string            // GPU types that it names
	fallback string              // the default profile
	taken    map[string]decision // what the admin has decided, by "key <user id>:<key>" and the like
}

// parseTable reads a table; what stands below the marker is only kept apart.
func parseTable(text string) (t table, err error) {
	first, rest, ok := strings.Cut(text, "\n")
	number, is := strings.CutPrefix(first, head)
	if t.generation, err = strconv.ParseUint(number, 10, 63); !ok || !is || err != nil {
		return t, fmt.Errorf("its first line is not %q", head+"<generation>")
	}
	t.own, t.learned, _ = strings.Cut(rest, marker)
	d, err := decisions.Parse(first + "\n" + t.own)
	if err != nil {
		return t, err
	}
	t.fallback, t.profiles, t.taken = d.Default, map[string]float64{}, map[string]decision{}
	for _, p := range d.Profiles {
		t.profiles[p.Name] = float64(p.MiB)
	}
	t.gpuTypes = slices.Sorted(maps.Keys(d.Models))
	for kind, lines := range map[string]map[string]decisions.Learned{"key": d.Key, "user": d.User, "site": d.Site} {
		for who, l := range lines {
			t.taken[kind+" "+who] = decision{profile: l.Profile, seconds: l.Seconds}
		}
	}
	return t, nil
}

// gpuModels are those that the table is for, with the profiles that it lists: the one that its default is of, and then
// those whose whole GPU it lists. Models that share names are told apart by the models that it names, then by how many
// of theirs are listed; else the one with the least memory is meant.
func (t table) gpuModels() []*mig.Model {
	var list []*mig.Model
	for _, b := range mig.Models() {
		var has []mig.Profile
		whole := 0
		for _, p := range b.Profiles {
			memory, ok := t.profiles[p.Name]
			if !ok || !mig.Plain(p) {
				continue // media engines and graphics are for who asks for them
			}
			if memory > 0 {
				p.MemoryMiB = uint64(memory)
			}
			has = append(has, p)
			whole = max(whole, p.Size)
		}
		fallback := slices.ContainsFunc(has, func(p mig.Profile) bool { return p.Name == t.fallback })
		if whole < b.Grid && !fallback {
			continue
		}
		if b, err := mig.NewModel(b.Name, b.Type, b.Device, b.Grid, has); err == nil {
			list = append(list, b)
		}
	}
	rank := func(b *mig.Model) (without, fewer int, memory float64) {
		if _, ok := b.ProfileIndex(t.fallback); !ok {
			without = 2
		}
		if !slices.Contains(t.gpuTypes, b.Type) {
			without++
		}
		for k := range b.Profiles {
			memory += b.Profiles[k].Memory()
		}
		return without, -len(b.Profiles), memory
	}
	slices.SortStableFunc(list, func(a, b *mig.Model) int {
		a1, a2, a3 := rank(a)
		b1, b2, b3 := rank(b)
		return cmp.Or(cmp.Compare(a1, b1), cmp.Compare(a2, b2), cmp.Compare(a3, b3))
	})
	return list
}

// Table is what a decision table says of predictions.
type Table struct {
	// those that it is for, with the profiles that it lists and may be given without being asked for
	Models  []*mig.Model
	Default string
	taken   map[string]decision
}

// ReadTable reads the table at path.
func ReadTable(path string) (Table, error) {
	t, _, err := readTable(path)
	return Table{t.gpuModels(), t.fallback, t.taken}, err
}

// Own is the profile that an admin's line gives a job of which runs at this level are known; empty: none does. What is
// learned of its key goes before a line for its user's work, and that of its user's work before a line for anybody's.
func (t Table) Own(job repo.Of, level predict.Level) string {
	lines := []string{
		fmt.Sprintf("key %d:%s", job.UID, job.Key),
		fmt.Sprintf("user %d:%s", job.UID, job.Fingerprint),
		"site " + job.Fingerprint,
	}
	switch level {
	case predict.ByKey:
		lines = lines[:1]
	case predict.ByUser:
		lines = lines[:2]
	}
	for _, line := range lines {
		if own, ok := t.taken[line]; ok {
			return own.profile
		}
	}
	return ""
}

// with is the table with other learned lines, as many as there is room for: the next generation's.
func (t table) with(lines []learnedLine) string {
	text := fmt.Sprintf("%s%d\n%s%s", head, t.generation+1, t.own, marker)
	room, bytes := decisions.MaxLines-strings.Count(text, "\n"), decisions.MaxBytes-len(text)
	var b strings.Builder
	b.WriteString(text)
	for _, l := range share(lines, room, bytes) {
		b.WriteString(l.text())
	}
	return b.String()
}

// readTable reads the table at path, which an admin has begun.
func readTable(path string) (table, os.FileInfo, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return table{}, nil, &noTable{path}
	} else if err != nil {
		return table{}, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > decisions.MaxBytes {
		return table{}, nil, fmt.Errorf(
			"%s is no file of at most %d bytes: it is no decision table",
			path,
			decisions.MaxBytes,
		)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return table{}, nil, err
	}
	t, err := parseTable(string(text))
	if err != nil {
		return table{}, nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, info, nil
}

// noTable is an fs.ErrNotExist that says what to do.
type noTable struct{ path string }

func (e *noTable) Error() string {
	return fmt.Sprintf(
		"there is no decision table %s: begin it with what `caelum slurm-config --section decisions` prints",
		e.path,
	)
}

func (e *noTable) Unwrap() error { return os.ErrNotExist }

// errChanged: somebody has written the table meanwhile.
var errChanged = errors.New("it has just been changed by somebody else; try again")

// replace puts a text in the place of the file that was read, under the same mode and, as far as that is allowed,
// owner, by rename: slurmctld never sees half of it.
func replace(path string, was os.FileInfo, text string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("couldn't write %s: %w", path, err)
		}
	}()
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	if err := trust.Directory(path); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".decisions-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // when it has been renamed there is none
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	owner := was.Sys().(*syscall.Stat_t)
	if mine, err := f.Stat(); err != nil {
		return err
	} else if is := mine.Sys().(*syscall.Stat_t); is.Uid != owner.Uid || is.Gid != owner.Gid {
		// Who is not root, and may replace it, may not always give it away.
		if err := f.Chown(int(owner.Uid), int(owner.Gid)); err != nil && (os.Getuid() == 0 || !errors.Is(err, os.ErrPermission)) {
			return err
		}
	}
	if err := f.Chmod(was.Mode().Perm()); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	now, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !os.SameFile(was, now) || now.ModTime() != was.ModTime() || now.Size() != was.Size() {
		return errChanged
	}
	return os.Rename(f.Name(), path)
}
