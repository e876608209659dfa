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

	"caelum/internal/controller/decisions"
	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
	"caelum/internal/trust"
)

const (
	// marker separates the administrator's lines from the learned lines. Write replaces the lines below it.
	marker = "# The lines below are learned from earlier runs (caelum repo decisions), and Caelum replaces " +
		"all of them. Write your own lines above this line.\n"
	// oldMarker is the marker that earlier versions wrote. The next write replaces it with marker.
	oldMarker = "# What stands below this line is learned from earlier runs (caelum repo decisions): " +
		"it is written anew each time. Above it, write what you like.\n"
	head = "caelum-decisions 1 "
)

// table is a decision table, divided at the marker.
type table struct {
	generation uint64
	own        string // the administrator's lines, without the first line of the file
	learned    string
	marked     bool // true if the table contains the marker
	// profiles maps each profile that jobs can be given to its memory in MiB, or to 0 if the table does not specify the
	// memory.
	profiles map[string]float64
	gpuTypes []string                // the GPU types in the table
	fallback string                  // the default profile
	lines    decisions.Table         // the administrator's lines
	decided  map[string]predict.Line // the administrator's decisions by line name, e.g. "key <user id>:<key>"
}

// parseTable parses a table. It separates the learned lines from the rest, but does not parse them.
func parseTable(text string) (t table, err error) {
	first, rest, ok := strings.Cut(text, "\n")
	number, is := strings.CutPrefix(first, head)
	if t.generation, err = strconv.ParseUint(number, 10, 63); !ok || !is || err != nil {
		return t, fmt.Errorf("the first line is not %q", head+"<generation>")
	}
	t.own, t.learned, t.marked = cutAtMarker(rest)
	d, err := decisions.Parse(first + "\n" + t.own)
	if err != nil {
		return t, err
	}
	t.lines, t.fallback, t.profiles, t.decided = d, d.Default, map[string]float64{}, map[string]predict.Line{}
	for _, p := range d.Profiles {
		t.profiles[p.Name] = float64(p.MiB)
	}
	t.gpuTypes = slices.Sorted(maps.Keys(d.Models))
	for kind, lines := range map[predict.Level]map[string]predict.Line{
		predict.ByKey: d.Key, predict.ByUser: d.User, predict.BySite: d.Site,
		predict.ByName: d.Name, predict.ByOwner: d.Owner,
	} {
		for who, l := range lines {
			t.decided[string(kind)+" "+who] = l
		}
	}
	return t, nil
}

// cutAtMarker divides the lines of a table at its first marker, which may also be an oldMarker.
func cutAtMarker(lines string) (own, learned string, marked bool) {
	own, learned, marked = strings.Cut(lines, marker)
	if before, after, old := strings.Cut(lines, oldMarker); old && len(before) < len(own) {
		return before, after, true
	}
	return own, learned, marked
}

// gpuModels returns the GPU models to which the table applies, each with the profiles that the table lists. The table
// applies to a model if it lists the model's whole-GPU profile, or if the model has the default profile. Because models
// may share profile names, the order matters: models with the default profile come first, then those whose type is in
// the table, then those with more listed profiles, and then those with less memory. A GPU type with fractions is a
// model, too.
func (t table) gpuModels() []*mig.Model {
	var list []*mig.Model
	for _, b := range mig.Models() {
		var has []mig.Profile
		whole := 0
		for _, p := range b.Profiles {
			memory, ok := t.profiles[p.Name]
			if !ok || !mig.Plain(p) {
				continue // jobs are given profiles with media engines or graphics only on request
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
	list = append(list, t.divided()...)
	rank := func(b *mig.Model) (without, fewer int, memory float64) {
		if _, ok := b.ProfileIndex(t.fallback); !ok {
			without = 2
		}
		if !slices.ContainsFunc(t.gpuTypes, func(site string) bool { return mig.TypeNames(site, b.Type) }) {
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

// divided returns a model for each GPU type for which the table lists fractions, with only these profiles and full. The
// number of units of a GPU may be unknown, but predictions need only the order of the profiles and their memory.
func (t table) divided() (list []*mig.Model) {
	for _, kind := range t.gpuTypes {
		var has []mig.Profile
		half := 0 // units of the largest fraction
		for _, name := range t.lines.Models[kind] {
			if units := mig.Units(name); units > 0 || name == mig.Full {
				half = max(half, units)
				has = append(has, mig.Profile{Name: name, Size: units, Max: 1, Starts: []int{0},
					MemoryMiB: uint64(t.profiles[name])})
			}
		}
		for k := range has {
			has[k].Size, has[k].Compute = cmp.Or(has[k].Size, 2*half), 2*half // fractions share the compute slices
		}
		if b, err := mig.NewModel(kind, kind, "", 2*half, has); err == nil { // half is 0 without fractions
			list = append(list, b)
		}
	}
	return list
}

// with returns the content of the table's next generation, including as many of the given learned lines as fit.
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

// readTable reads the table at path. If the file does not exist, the error is a noTable, because only the administrator
// creates a table.
func readTable(path string) (table, os.FileInfo, error) {
	text, info, err := readText(path)
	if err != nil {
		return table{}, nil, err
	}
	t, err := parseTable(text)
	if err != nil {
		return table{}, nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, info, nil
}

// noTable is the error for a decision table that does not exist. It wraps fs.ErrNotExist, and its message explains how
// to create the table.
type noTable struct{ path string }

func (e *noTable) Error() string {
	return fmt.Sprintf(
		"the decision table %s does not exist; if this is not slurmctld's host, run the command there; otherwise, "+
			"create the table from the output of `caelum slurm-config --section decisions`", e.path)
}

func (e *noTable) Unwrap() error { return os.ErrNotExist }

// errChanged means that another program wrote the table after it was read and before it could be replaced.
var errChanged = errors.New("another program has changed the decision table; try again")

// replace writes a new file and renames it over the old one, so that slurmctld never reads an incomplete table. The new
// file has the same mode as the old one and, if permissions allow, the same owner.
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
	made, err := writeNew(filepath.Dir(path), text, was.Mode().Perm(), was.Sys().(*syscall.Stat_t))
	if err != nil {
		return err
	}
	defer os.Remove(made) // no effect if the file was renamed
	now, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !os.SameFile(was, now) || now.ModTime() != was.ModTime() || now.Size() != was.Size() {
		return errChanged
	}
	return os.Rename(made, path)
}

// writeNew writes a table into a new file in a directory, with the given mode and, if permissions allow, the given
// owner. It returns the file's path.
func writeNew(dir, text string, mode os.FileMode, owner *syscall.Stat_t) (path string, err error) {
	f, err := os.CreateTemp(dir, ".decisions-*")
	if errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
		return "", fmt.Errorf("%w; restart caelum-watch, whose unit moves the table to the watcher's directory", err)
	} else if err != nil {
		return "", err
	}
	defer func() {
		if f.Close(); err != nil {
			os.Remove(f.Name())
		}
	}()
	if _, err := f.WriteString(text); err != nil {
		return "", err
	}
	if mine, err := f.Stat(); err != nil {
		return "", err
	} else if is := mine.Sys().(*syscall.Stat_t); is.Uid != owner.Uid || is.Gid != owner.Gid {
		// The user may have permission to replace the file but not to change its owner.
		err := f.Chown(int(owner.Uid), int(owner.Gid))
		if err != nil && (os.Getuid() == 0 || !errors.Is(err, os.ErrPermission)) {
			return "", err
		}
	}
	if err := f.Chmod(mode); err != nil {
		return "", err
	}
	return f.Name(), f.Sync()
}
