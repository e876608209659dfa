package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"caelum/internal/core/mig"
	"caelum/internal/node/api"
	"caelum/internal/slurm"
)

// completed returns the values and the number of the directive that cobra's __complete prints for the last argument.
func completed(t *testing.T, args ...string) (all []string, directive string) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	root.SetArgs(append([]string{"__complete"}, args...))
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	last := len(lines) - 1
	return lines[:last:last], strings.TrimPrefix(lines[last], ":")
}

// These constants are cobra directives, as printed by __complete.
const (
	files       = "0"
	noFiles     = "4"
	listNoFiles = "6" // like noFiles, and the shell adds no space after the value
)

func TestComplete(t *testing.T) {
	var models, clusters []string
	for _, b := range mig.Models() {
		models, clusters = append(models, b.Name), append(clusters, b.Name+":")
	}
	a30 := []string{"1g.6gb", "2g.12gb", "4g.24gb"}
	for _, c := range []struct {
		line      string
		want      []string
		directive string
	}{
		{"profiles |", models, noFiles},
		{"profiles A30 |", nil, noFiles},
		{"profiles |A30", []string{"A30-24GB"}, noFiles},
		{"simulate --gpus A30:2 --profiles |1g.6gb,", []string{"1g.6gb,2g.12gb", "1g.6gb,4g.24gb"}, listNoFiles},
		{"simulate --gpus |", clusters, listNoFiles},
		{"simulate --gpus A30:2 --profiles |", a30, listNoFiles},
		{"simulate --gpus L40S-48GB/4:2 --profiles |", []string{"1f.11gb", "2f.22gb", "full"}, listNoFiles},
		{"simulate --policies |whole,st", []string{"whole,static"}, listNoFiles},
		{"simulate --queue |e", []string{"easy"}, noFiles},
		{"predict --gpus |", nil, files},
		{"predict --board |A30", []string{"A30-24GB"}, noFiles},
		{"profile-job --board A30 --profiles |", a30, listNoFiles},
		{"profile-job |", nil, files},
		{"repo import |", nil, files},
		{"repo list |", nil, noFiles},
		{"slurm-config --section |g", []string{"gres.conf"}, noFiles},
		{"status |", nil, noFiles},
	} {
		words := strings.Split(c.line, " ")
		words[len(words)-1] = strings.TrimPrefix(words[len(words)-1], "|")
		got, directive := completed(t, words...)
		// __complete also prints values that do not begin with the word. The shell omits these values.
		got = slices.DeleteFunc(got, func(v string) bool { return !strings.HasPrefix(v, words[len(words)-1]) })
		if !slices.Equal(got, c.want) || directive != c.directive {
			t.Errorf("%s: got %q, directive %s; want %q, %s", c.line, got, directive, c.want, c.directive)
		}
	}
}

func TestCompleteJobs(t *testing.T) {
	defer func(f func(context.Context) ([]slurm.Job, error)) { listJobs = f }(listJobs)
	listJobs = func(context.Context) ([]slurm.Job, error) {
		return []slurm.Job{
			{ID: 7, Name: "train\x1b[2J\n", User: "user1", State: "RUNNING"},
			{ID: 8, Name: "wait", User: "user2", State: "PENDING"},
		}, nil
	}
	for command, want := range map[string][]string{
		"predict": {"7\ttrain?[2J? of user1", "8\twait of user2"},
		"explain": {"8\twait of user2"},
	} {
		if got, directive := completed(t, command, ""); !slices.Equal(got, want) || directive != noFiles {
			t.Errorf("%s: got %q, directive %s; want %q", command, got, directive, want)
		}
		if got, _ := completed(t, command, "7", ""); len(got) > 0 {
			t.Errorf("%s: got %q for a second job, want no values", command, got)
		}
	}
	listJobs = func(context.Context) ([]slurm.Job, error) { return nil, errors.New("no slurmctld") }
	if got, directive := completed(t, "explain", ""); len(got) > 0 || directive != noFiles {
		t.Errorf("without slurmctld: got %q, directive %s; want no values, %s", got, directive, noFiles)
	}
}

func TestCompleteLeases(t *testing.T) {
	dir := t.TempDir()
	if got, directive := completed(t, "--run-dir", dir, "job", ""); len(got) > 0 || directive != noFiles {
		t.Errorf("without an agent: got %q, directive %s; want no values, %s", got, directive, noFiles)
	}
	l, err := api.Listen(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := api.NewServer(fixed{})
	go server.Serve(l)
	defer server.Close()
	status, err := fixed{}.Status(t.Context())
	if err != nil || len(status.Leases) == 0 {
		t.Fatalf("the agent of the tests has no leases (%v)", err)
	}
	got, _ := completed(t, "--run-dir", dir, "job", "")
	if len(got) != len(status.Leases) || !strings.HasPrefix(got[0], "7\ttrain") {
		t.Errorf("got %q, want job 7 with the name train", got)
	}
}
