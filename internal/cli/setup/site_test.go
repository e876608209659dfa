package setup

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sections is the output of `caelum slurm-config --nodes 'n[1-2]'` on a node with two A100 GPUs and two profiles.
var sections = map[string]string{
	"slurm.conf": `GresTypes=gpu,mig
# The prolog may wait up to 60 s for the agent.
PrologFlags=Alloc
BatchStartTimeout=120
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_continue,bf_hetjob_prio=min
AccountingStorageTRES=gres/gpu,gres/mig,gres/mig:1g.5gb,gres/mig:7g.40gb
JobSubmitPlugins=lua
`,
	"nodes": `NodeName=n[1-2] Gres=gpu:a100:14,mig:1g.5gb:0,mig:7g.40gb:0,mig:closed:56
NodeName=mig-catalog[1-2] NodeAddr=127.0.0.1 Port=1 State=FUTURE CPUs=2 RealMemory=2 ` +
		`Gres=gpu:a100:14,mig:1g.5gb:14,mig:7g.40gb:2
PartitionName=gpu Nodes=n[1-2],mig-catalog[1-2]
`,
	"gres.conf": `AutoDetect=off
NodeName=n[1-2] Name=gpu Type=a100 File=/dev/caelum/slot[0-13] Flags=nvidia_gpu_env
NodeName=n[1-2] Name=mig Type=closed Count=56 Flags=CountOnly
`,
	"plugstack.conf": "required spank_caelum.so\n",
	"decisions": `caelum-decisions 1 1
partition gpu
profile 1g.5gb 4864
profile 7g.40gb 40192
model a100 1g.5gb
model a100 7g.40gb
default 7g.40gb
whole 7g.40gb
max_nodes 2
`,
}

// l40sSections changes the sections to those of a node with four GPUs without MIG.
var l40sSections = strings.NewReplacer(
	"gres/mig:1g.5gb,gres/mig:7g.40gb", "gres/mig:full", "a100:14", "a100:4",
	"mig:1g.5gb:0,mig:7g.40gb:0", "mig:full:0",
	"mig:1g.5gb:14,mig:7g.40gb:2", "mig:full:4", "closed:56", "closed:16", "Count=56", "Count=16", "[0-13]", "[0-3]",
	"profile 1g.5gb 4864\n", "", "profile 7g.40gb 40192", "profile full 46068 4", "model a100 1g.5gb\n", "",
	"model a100 7g.40gb", "model a100 full", "default 7g.40gb\nwhole 7g.40gb", "default full\nwhole full",
)

// fractionSections changes the sections to those of a node with four GPUs whose memory is divided into four units.
var fractionSections = strings.NewReplacer(
	"gres/mig:1g.5gb,gres/mig:7g.40gb", "gres/mig:1f.11gb,gres/mig:2f.22gb,gres/mig:full", "a100:14", "a100:16",
	"mig:1g.5gb:0,mig:7g.40gb:0", "mig:1f.11gb:0,mig:2f.22gb:0,mig:full:0",
	"mig:1g.5gb:14,mig:7g.40gb:2", "mig:1f.11gb:16,mig:2f.22gb:8,mig:full:4",
	"closed:56", "closed:64", "Count=56", "Count=64", "[0-13]", "[0-15]",
	"profile 1g.5gb 4864\n", "profile 1f.11gb 11389 16\nprofile 2f.22gb 22778 8\n",
	"profile 7g.40gb 40192", "profile full 46068 4",
	"model a100 1g.5gb\n", "model a100 1f.11gb 4\nmodel a100 2f.22gb 4\n", "model a100 7g.40gb", "model a100 full 4",
	"default 7g.40gb\nwhole 7g.40gb", "default full\nwhole full",
)

// site holds a site's files by path.
type site map[string]string

// merge calls Merge with the site's files and the inventory of a node with A100 GPUs.
func (s site) merge(nodes, partition string) (Result, error) {
	return s.mergeModel(nodes, partition, "a100")
}

// mergeModel calls Merge with the site's files and the inventory of a node with GPUs of another type. The partition
// caelum-trial is that of a trial.
func (s site) mergeModel(nodes, partition, model string) (Result, error) {
	mine := maps.Clone(sections)
	for name, text := range mine {
		switch model {
		case "l40s":
			text = l40sSections.Replace(text)
		case "l40s/4":
			text = fractionSections.Replace(text)
		}
		text = strings.ReplaceAll(text, "n[1-2]", nodes)
		mine[name] = strings.ReplaceAll(text, "a100", strings.TrimSuffix(model, "/4"))
	}
	if partition == "caelum-trial" {
		mine["decisions"] = strings.Replace(mine["decisions"], "partition gpu", "partition "+partition, 1)
	}
	return Merge(Request{
		SlurmConf: "/etc/slurm/slurm.conf",
		Decisions: "/etc/caelum/decisions",
		JobSubmit: "/usr/share/caelum/job_submit.lua",
		Nodes:     nodes,
		Partition: partition,
		Trial:     partition == "caelum-trial",
		Sections:  mine,
		Read: func(path string) ([]byte, string, error) {
			if text, ok := s[path]; ok {
				return []byte(text), path, nil
			}
			return nil, path, fs.ErrNotExist
		},
	})
}

// apply applies a patch to the site's files. It accepts only patches whose context is exactly the files' content.
func (s site) apply(patch []byte) (site, error) {
	result := maps.Clone(s)
	for part := range strings.SplitSeq("\n"+string(patch), "\ndiff --git a/") {
		if part == "" {
			continue
		}
		header, body, _ := strings.Cut(part, "\n@@ ")
		name, _, _ := strings.Cut(header, " ")
		name = "/" + name
		text, exists := result[name]
		if created := strings.Contains(header, "\n--- /dev/null"); created == exists {
			return nil, fmt.Errorf("%s: created is %v and exists is %v", name, created, exists)
		}
		after, err := hunks(strings.SplitAfter(text, "\n"), "\n@@ "+body)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		result[name] = after
		if strings.Contains(header, "\n+++ /dev/null") {
			delete(result, name)
			if after != "" {
				return nil, fmt.Errorf("%s: the deleted file is not empty", name)
			}
		}
	}
	return result, nil
}

// hunks applies the hunks of one file to its lines.
func hunks(old []string, body string) (string, error) {
	var out strings.Builder
	at := 0
	for hunk := range strings.SplitSeq(body, "\n@@ ") {
		if hunk == "" {
			continue
		}
		position, text, _ := strings.Cut(hunk, "\n")
		number, _, _ := strings.Cut(position, ",")
		first, err := strconv.Atoi(strings.TrimPrefix(number, "-"))
		if err != nil {
			return "", err
		}
		for ; at < first-1; at++ {
			out.WriteString(old[at])
		}
		text += "\n"
		for text != "" {
			row, rest, _ := strings.Cut(text, "\n")
			row, text = row+"\n", rest
			if strings.HasPrefix(text, `\ No newline`) {
				row = strings.TrimSuffix(row, "\n")
				_, text, _ = strings.Cut(text, "\n")
			}
			switch {
			case row == "\n" && text == "":
			case row[0] == '+':
				out.WriteString(row[1:])
			case at >= len(old) || old[at] != row[1:]:
				return "", fmt.Errorf("line %d differs from the patch: %q", at+1, row)
			default:
				if row[0] == ' ' {
					out.WriteString(row[1:])
				}
				at++
			}
		}
	}
	out.WriteString(strings.Join(old[at:], ""))
	return out.String(), nil
}

// check applies the patch and its inverse, and returns the changed files. After both, the files must be identical to
// the originals. Merge must not change files that it has changed before.
func (s site) check(t fataler, r Result, nodes, partition string) site {
	t.Helper()
	return s.checkModel(t, r, nodes, partition, "a100")
}

// checkModel is like check for GPUs of another type.
func (s site) checkModel(t fataler, r Result, nodes, partition, model string) site {
	t.Helper()
	changed, err := s.apply(Patch(r.Files))
	if err != nil {
		t.Fatalf("the patch does not apply: %v\n%s", err, Patch(r.Files))
	}
	for _, f := range r.Files {
		if changed[f.Path] != string(f.New) {
			t.Fatalf("%s is after the patch\n%q\nwant\n%q", f.Path, changed[f.Path], f.New)
		}
	}
	back, err := changed.apply(Inverse(r.Files))
	if err != nil {
		t.Fatalf("the inverse does not apply: %v\n%s", err, Inverse(r.Files))
	}
	if !maps.Equal(back, s) {
		t.Fatalf("the files are after both patches\n%q\nwant\n%q", back, s)
	}
	again, err := changed.mergeModel(nodes, partition, model)
	if err != nil || len(again.Problems) > 0 || len(Patch(again.Files)) > 0 {
		t.Fatalf("the second merge is not empty: %v %v\n%s\nof\n%q", err, again.Problems, Patch(again.Files), changed)
	}
	return changed
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// gnuPatch applies a patch with patch(1) to the site's files in a directory, and returns the resulting files.
func (s site) gnuPatch(t fataler, dir string, patch []byte, options ...string) site {
	t.Helper()
	s.write(t, dir)
	cmd := exec.Command("patch", slices.Concat([]string{"-p1", "-d", dir}, options)...)
	cmd.Stdin = bytes.NewReader(patch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("patch: %v\n%s\n%s", err, out, patch)
	}
	return readSite(t, dir)
}

// write writes the site's files into a directory.
func (s site) write(t fataler, dir string) {
	t.Helper()
	for name, text := range s {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatalf("%v", err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatalf("%v", err)
		}
	}
}

// readSite returns the files in a directory.
func readSite(t fataler, dir string) site {
	t.Helper()
	result := site{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		result[strings.TrimPrefix(path, dir)] = string(text)
		return err
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return result
}

// hasPatch skips a test on machines without patch(1).
func hasPatch(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("patch"); err != nil {
		t.Skip("patch is not installed")
	}
}
