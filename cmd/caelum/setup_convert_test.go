package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"caelum/internal/cli/setup"
	"caelum/internal/slurm"
)

// site imitates slurmctld and the nodes n1, which is converted, n2, and n3, which is down. At every third request, its
// administrator restarts a daemon that has not read the files.
type site struct {
	convertible
	dir                 string
	n1, n2              slurm.Node
	started             time.Time
	slurmctld, slurmd   string // the contents of slurm.conf that the daemons have read
	requests, permitted int    // after permitted requests, setup is interrupted
	broken              string // with this content of slurm.conf, slurmctld does not start
}

var errStopped = errors.New("stopped")

func (s *site) request() error {
	if s.permitted--; s.permitted < 0 {
		return errStopped
	}
	conf := s.read("slurm.conf")
	if s.requests++; s.requests%3 > 0 {
		// the administrator is away
	} else if s.slurmctld != conf {
		s.slurmctld, s.started = conf, s.started.Add(time.Second)
		s.calls = append(s.calls, "slurmctld reads "+conf+" and "+s.read("job_submit.lua"))
	} else if s.slurmd != conf {
		s.slurmd, s.n1.SlurmdStartTime = conf, s.n1.SlurmdStartTime.Add(time.Second)
		s.n2.SlurmdStartTime = s.n1.SlurmdStartTime
		s.calls = append(s.calls, "slurmd reads "+conf)
		s.n1.Gres, s.n1.Extra = slurm.GRESList{{Name: "gpu", Count: 2}}, ""
		if conf == "new" {
			s.n1.Gres = slurm.GRESList{{Name: "gpu", Count: 14}, {Name: "mig", Type: "1g.5gb", Count: 1}}
			s.n1.Extra = "caelum=1;since/0"
		}
	}
	if s.slurmctld == s.broken {
		return slurm.ErrUnreachable
	}
	return nil
}

func (s *site) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(s.dir, name))
	return string(text)
}

func (s *site) Queue(context.Context) (slurm.Queue, error) {
	s.calls = append(s.calls, "convert")
	return slurm.Queue{}, s.request()
}
func (s *site) ConvertMarks(context.Context, []slurm.Waiting) (map[uint32]string, error) {
	return nil, s.request()
}
func (s *site) Nodes(context.Context) ([]slurm.Node, error) {
	err := s.request()
	return []slurm.Node{s.n1, s.n2, {Name: "n3", States: []string{"DOWN"}}}, err
}
func (s *site) Jobs(context.Context) ([]slurm.Job, error) { return nil, s.request() }
func (s *site) Config(context.Context) (c slurm.Config, err error) {
	err = s.request()
	c.Values = map[string]string{"BOOT_TIME": strconv.FormatInt(s.started.Unix(), 10)}
	return c, err
}
func (s *site) SetNodeState(_ context.Context, nodes []string, state, reason string) error {
	s.n1.Reason = reason
	s.calls = append(s.calls, state+" "+strings.Join(nodes, ","))
	s.n1.States = map[string][]string{"drain": {"IDLE", "DRAIN"}, "resume": {"IDLE"}}[state]
	return s.request()
}

// newSite returns a site with its files, and the first state of a conversion.
func newSite(t *testing.T) (*site, *conversions) {
	t.Helper()
	s := &site{dir: t.TempDir(), started: time.Unix(1763790000, 0), slurmctld: "old", slurmd: "old", broken: "none"}
	s.n1 = slurm.Node{Name: "n1", States: []string{"IDLE"}, Gres: slurm.GRESList{{Name: "gpu", Count: 2}},
		SlurmdStartTime: s.started}
	s.n2 = slurm.Node{Name: "n2", States: []string{"IDLE"}, SlurmdStartTime: s.started}
	var files []setup.File
	for _, name := range []string{"slurm.conf", "job_submit.lua"} {
		path := filepath.Join(s.dir, name)
		if err := os.WriteFile(path, []byte("old"), 0o640); err != nil {
			t.Fatal(err)
		}
		files = append(files, setup.File{Path: path, Old: []byte("old"), New: []byte("new")})
	}
	files = append(files, setup.File{Path: filepath.Join(s.dir, "plugstack.conf"), New: []byte("new")})
	all, err := saved(files)
	if err != nil {
		t.Fatal(err)
	}
	return s, &conversions{path: filepath.Join(s.dir, "setup.json"), all: []setup.Conversion{{Nodes: []string{"n1"},
		Step: "drain", Files: all, GPUs: map[string]int{"n1": 2}, Decisions: "/none"}}}
}

// convertSite runs setup with a number of requests again and again, until the conversion reaches the given step, or is
// complete, and returns the output. Each run begins with the stored state.
func convertSite(t *testing.T, s *site, all *conversions, requests int, step string) string {
	t.Helper()
	var out bytes.Buffer
	c := &converter{conversions: all, Conversion: all.last(), ctl: s, out: &out, poll: time.Millisecond,
		systemctl: func(context.Context, ...string) error { return errors.New("no systemd") }}
	if err := c.save(); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		stored, lock, err := openConversions(all.path, filepath.Join(s.dir, "lock"))
		if err != nil {
			t.Fatal(err)
		}
		c.conversions, c.Conversion, s.permitted = stored, stored.last(), requests
		if c.Conversion != nil && c.Step != step {
			err = c.run(t.Context())
		}
		lock.Close()
		switch all.all = stored.all; {
		case c.Conversion == nil || c.Step == step || c.Step == "":
			return out.String()
		case !errors.Is(err, errStopped):
			t.Fatalf("%v\n%s", err, out.String())
		}
	}
	t.Fatalf("no end, with the calls %q:\n%s", s.calls, out.String())
	return ""
}

// TestConversion converts a site and takes this back, with interruptions at every request to slurmctld.
func TestConversion(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root accepts root's files")
	}
	forth := []string{"drain n1", "slurmctld reads new and old", "slurmd reads new", "convert", "resume n1"}
	again := []string{"drain n1", "convert", "slurmctld reads old and old", "slurmd reads old", "resume n1"}
	for requests := 3; requests < 12; requests++ {
		s, all := newSite(t)
		out := convertSite(t, s, all, requests, "doctor")
		if got := slices.Compact(s.calls); !slices.Equal(got, forth) {
			t.Errorf("with %d requests, setup made the calls %q, want %q\n%s", requests, got, forth, out)
		}
		if s.read("job_submit.lua")+s.read("plugstack.conf") != "newnew" {
			t.Errorf("with %d requests, the files are not written", requests)
		}
		s.calls = nil
		reverse(all.last())
		out = convertSite(t, s, all, requests, "")
		if got := slices.Compact(s.calls); !slices.Equal(got, again) {
			t.Errorf("with %d requests, setup --undo made the calls %q, want %q\n%s", requests, got, again, out)
		}
		info, err := os.Stat(filepath.Join(s.dir, "slurm.conf"))
		files, _ := filepath.Glob(s.dir + "/*")
		if err != nil || info.Mode() != 0o640 || s.read("slurm.conf")+s.read("job_submit.lua") != "oldold" ||
			len(files) != 3 { // with the lock
			t.Errorf("after --undo, there are the files %q: %v", files, err)
		}
	}
}

// TestRestartAgain checks that setup restarts slurmctld once more if it counts the GPUs that slurmd registered before
// its restart.
func TestRestartAgain(t *testing.T) {
	s, all := newSite(t)
	c := &converter{conversions: all, Conversion: all.last(), ctl: s, out: &bytes.Buffer{}, poll: time.Millisecond}
	c.Record(s.started, []slurm.Node{s.n1, s.n2})
	s.permitted, s.n1.Extra, s.n1.SlurmdStartTime = 10, "caelum=1;since/0", s.started.Add(time.Second)
	s.n1.Gres = slurm.GRESList{{Name: "gpu", Count: 2}, {Name: "mig", Type: "1g.5gb"}}
	restarts := 0
	c.systemctl = func(_ context.Context, args ...string) error {
		if args[0] == "restart" {
			restarts++
			s.n1.Gres = slurm.GRESList{{Name: "gpu", Count: 14}}
		}
		return nil
	}
	if err := c.register(t.Context()); !errors.Is(err, errStopped) || restarts != 0 {
		t.Errorf("while slurmd of n2 runs, there were %d restarts: %v", restarts, err)
	}
	s.permitted, s.n2.SlurmdStartTime = 10, s.n1.SlurmdStartTime
	if err := c.register(t.Context()); err != nil || restarts != 1 {
		t.Errorf("there were %d restarts: %v", restarts, err)
	}
}

// TestConversionBroken takes a conversion back whose files prevent slurmctld's start.
func TestConversionBroken(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root accepts root's files")
	}
	s, all := newSite(t)
	s.broken = "new"
	convertSite(t, s, all, 12, "slurmctld")
	s.slurmctld = "new"
	reverse(all.last())
	out := convertSite(t, s, all, 100, "")
	if s.read("slurm.conf") != "old" || !slices.Equal(s.n1.States, []string{"IDLE"}) || s.slurmd != "old" {
		t.Errorf("setup --undo left %q:\n%s", s.calls, out)
	}
}

// TestRestoreChangedFile checks that --undo keeps a file with other changes, until it has changed again.
func TestRestoreChangedFile(t *testing.T) {
	s, all := newSite(t)
	f := &all.last().Files[0]
	if err := os.WriteFile(f.Path, []byte("new and more"), 0o640); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if patch, err := restoreFile(f); err != nil || !strings.Contains(string(patch), "\n-new\n") {
			t.Errorf("restoreFile returned %q, %v", patch, err)
		}
	}
	if err := os.WriteFile(f.Path, []byte("old and more"), 0o640); err != nil {
		t.Fatal(err)
	}
	if patch, err := restoreFile(f); err != nil || patch != nil || s.read("slurm.conf") != "old and more" {
		t.Errorf("restoreFile returned %q, %v", patch, err)
	}
	if _, err := pending(*f); err == nil {
		t.Error("a file with other content is accepted")
	}
}
