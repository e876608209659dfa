package setup

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/core/mig"
	"caelum/internal/slurm"
)

// Request is the input of Merge.
type Request struct {
	// SlurmConf is the path of the site's slurm.conf. gres.conf, plugstack.conf and job_submit.lua are in the same
	// directory, except that PlugStackConfig in slurm.conf can name another plugstack.conf.
	SlurmConf string
	// Decisions is the path of the decision table.
	Decisions string
	// JobSubmit is the path of Caelum's job_submit.lua on slurmctld's host.
	JobSubmit string
	// Nodes is a hostlist of all nodes with the same GPUs.
	Nodes string
	// Partition is the partition whose jobs are given slices.
	Partition string
	// Trial is true if Nodes is a single node that leaves its partitions for Partition, which Merge creates.
	Trial bool
	// Sections holds the sections that `caelum slurm-config` prints, without the headings.
	Sections map[string]string
	// Read returns the content of a file and its path with all symbolic links resolved. For a file that does not exist,
	// it returns the path at which the file would be created and the error fs.ErrNotExist.
	Read func(path string) (content []byte, resolved string, err error)
}

// Problem is a construct in a file that Merge cannot change safely.
type Problem struct {
	Path string
	Line int // 0 if the problem concerns the entire file
	Text string
}

func (p Problem) String() string {
	if p.Line == 0 {
		return p.Path + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d: %s", p.Path, p.Line, p.Text)
}

// Result holds the files with their changes, the problems, and notes about the steps that the administrator must
// take. If there are problems, the changes are incomplete.
type Result struct {
	Files      []File
	Problems   []Problem
	Notes      []string
	Partitions []string // the partitions that Caelum manages afterwards
}

type merger struct {
	Request
	managed  map[string]bool
	mostGPUs int      // the largest number of GPUs of an unmanaged node in a partition with managed nodes
	absent   []string // the managed nodes without a NodeName line
	types    gpuTypes
	perGPU   []string // the per_gpu lines of the decision table
	// shards holds the shards of a GPU that fractions replace, by the type of the shards, which may be empty.
	// keepShards is true if something else needs the TRES gres/shard.
	shards     map[string]shardCount
	keepShards bool
	files      []*file
	err        error
	inventory
	Result
}

// inventory is the part of the sections that describes the GPUs.
type inventory struct {
	slots        []gpuItem      // the slots of each type
	profiles     []string       // from small to large
	most         map[string]int // the largest number of slices of each profile on a node
	wholeProfile string
	units        map[string]int // for each fraction of a GPU without MIG, the number of units of the whole GPU
}

// Merge returns the changes to the site's files. It returns an error if a file cannot be read, or if the request is
// invalid.
func Merge(r Request) (Result, error) {
	hosts, err := slurm.ExpandHosts(r.Nodes)
	if err != nil {
		return Result{}, err
	}
	if len(hosts) == 0 {
		return Result{}, errors.New("the list of nodes is empty; set --nodes")
	}
	m := &merger{Request: r, managed: map[string]bool{}}
	for _, h := range hosts {
		m.managed[h] = true
	}
	top, lines := m.load(r.SlurmConf)
	if m.err == nil && top.fresh {
		m.err = fmt.Errorf("%s does not exist; set --conf to the site's slurm.conf", r.SlurmConf)
	}
	if m.err != nil {
		return Result{}, m.err
	}
	m.readInventory()
	nodes := m.nodeLines(lines)
	m.findShards(lines, nodes)
	m.parameters(top, lines)
	gresTop, gres := m.load(m.beside("gres.conf"))
	m.findTypes(nodes, gres)
	m.setGres(nodes)
	parts := m.partitionLines(lines, nodes)
	if len(m.absent) == 0 {
		kinds := m.kinds(nodes)
		names := m.catalogues(lines, kinds)
		if m.Trial {
			parts = m.trial(lines, parts, nodes, names)
		}
		m.partitions(lines, parts, nodes, kinds, names)
		m.unmanaged(parts, nodes)
	}
	m.limits(lines, parts, nodes)
	if gresTop != nil {
		m.gresConf(gresTop, gres, nodes)
	}
	m.plugins(lines)
	m.decisions(parts, nodes)
	if m.err != nil {
		return Result{}, m.err
	}
	for _, f := range m.files {
		of := File{f.path, f.original, f.result()}
		if f.fresh {
			of.Old = nil
		}
		if f.fresh && len(of.New) == 0 {
			continue
		}
		m.Files = append(m.Files, of)
	}
	return m.Result, nil
}

// plain matches paths that do not need quotes in a patch.
var plain = regexp.MustCompile(`^/[A-Za-z0-9_./+@:=-]+$`)

// open reads a file. If the file does not exist, open returns an empty file with fresh set. It returns nil if the file
// cannot be read or has already been read.
func (m *merger) open(name string) *file {
	text, resolved, err := m.Read(name)
	f := &file{path: resolved, old: text, fresh: errors.Is(err, fs.ErrNotExist)}
	if err != nil && !f.fresh {
		m.err = cmp.Or(m.err, err)
		return nil
	}
	if text == nil {
		f.old = []byte{}
	}
	f.original = f.old
	if slices.ContainsFunc(m.files, func(other *file) bool { return other.path == resolved }) {
		const twice = "Slurm reads the file more than once; include it only once"
		m.Problems = append(m.Problems, Problem{resolved, 0, twice})
		return nil
	}
	m.files = append(m.files, f)
	if !plain.MatchString(resolved) {
		m.Problems = append(m.Problems, Problem{resolved, 0, "a patch cannot contain this path; rename the file"})
	}
	if at := bytes.IndexByte(text, 0); at >= 0 {
		n := 1 + bytes.Count(text[:at], []byte("\n"))
		m.Problems = append(m.Problems, Problem{resolved, n, "the line contains a NUL byte; remove it"})
	}
	return f
}

// beside returns the path of a file in the directory that contains slurm.conf.
func (m *merger) beside(name string) string { return path.Join(path.Dir(m.SlurmConf), name) }

func (m *merger) problem(l line, text string) {
	m.Problems = append(m.Problems, Problem{l.in.path, l.number, text})
}

func (m *merger) note(format string, args ...any) {
	m.Notes = append(m.Notes, fmt.Sprintf(format, args...))
}

// set replaces a value in a line, or reports a problem if the value cannot be replaced.
func (m *merger) set(l line, w word, value string) {
	if w.value == value {
		return
	}
	if w.split {
		m.problem(l, fmt.Sprintf("the value of %s continues on another line or contains a backslash; write it on one "+
			"line", w.key))
		return
	}
	l.in.replace(w, value)
}

// generated returns the logical lines of a section of `caelum slurm-config`, and the comments above each line.
func (m *merger) generated(section string) (lines []line, comments [][]string) {
	f := &file{path: section, old: []byte(m.Sections[section])}
	var above []string
	for _, l := range parse(f) {
		if len(l.words) == 0 {
			above = append(above, string(f.old[l.from:l.to]))
			continue
		}
		lines, comments, above = append(lines, l), append(comments, above), nil
	}
	return lines, comments
}

// readInventory reads the slots and profiles from the lines that `caelum slurm-config` prints.
func (m *merger) readInventory() {
	m.most, m.units = map[string]int{}, map[string]int{}
	lines, _ := m.generated("nodes")
	for _, item := range items(lines[1].value("Gres")) {
		parts := strings.Split(item, ":")
		count, _ := strconv.Atoi(parts[len(parts)-1])
		switch {
		case parts[0] == "gpu":
			m.slots = append(m.slots, gpuItem{item, parts[1], count})
		case parts[0] == "mig":
			m.profiles = append(m.profiles, parts[1])
			m.most[parts[1]] = count
		}
	}
	for text := range strings.Lines(m.Sections["decisions"]) {
		if profile, ok := strings.CutPrefix(text, "whole "); ok {
			m.wholeProfile = strings.TrimSpace(profile)
		}
		if words := strings.Fields(text); len(words) == 4 && words[0] == "model" && mig.IsFraction(words[2]) {
			m.units[words[2]], _ = strconv.Atoi(words[3])
		}
	}
}

// items returns the elements of a comma-separated list. Commas inside brackets do not separate elements.
func items(list string) (all []string) {
	depth, start := 0, 0
	for i := 0; i <= len(list); i++ {
		switch {
		case i == len(list) || list[i] == ',' && depth == 0:
			if item := strings.TrimSpace(list[start:i]); item != "" {
				all = append(all, item)
			}
			start = i + 1
		case list[i] == '[':
			depth++
		case list[i] == ']':
			depth--
		}
	}
	return all
}
