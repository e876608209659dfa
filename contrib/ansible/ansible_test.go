package ansible

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"caelum/internal/node/gpu/gputest"
)

// conf is the site's slurm.conf. It has no newline at the end.
const conf = "ClusterName=site\nNodeName=gpu[01-02] CPUs=64 RealMemory=512000 Gres=gpu:2\n" +
	"PartitionName=gpu Nodes=gpu[01-02]"

const playbook = `
- hosts: localhost
  connection: local
  gather_facts: false
  roles:
    - role: caelum
      caelum_agent: true
      caelum_controller: true
      caelum_gpu_node: localhost
      caelum_nodes: "gpu[01-02]"
      caelum_config: {sizing: tightest, run_dir: /run/caelum}
`

// TestRole runs the role twice in a temporary root directory. The second run must change nothing. Then it reverts the
// saved patch.
func TestRole(t *testing.T) {
	if testing.Short() {
		t.Skip("runs ansible-playbook three times, which takes a minute; make test runs this test")
	}
	if _, err := exec.LookPath("ansible-playbook"); err != nil {
		t.Skip("ansible-playbook is not installed")
	}
	if os.Geteuid() != 0 {
		t.Skip("the role changes owners, which needs root")
	}
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	run := prepare(t, dir, root)
	run("-e", "caelum_apply=false") // Ansible passes false as a string, which is true in a condition
	if text := tree(t, root)["/etc/slurm/slurm.conf"]; text != conf {
		t.Errorf("with caelum_apply=false, the role changed slurm.conf:\n%s", text)
	}
	if changed := run(); changed == "0" {
		t.Error("the first run changed nothing")
	}
	first := tree(t, root)
	for name, want := range map[string]string{
		"/etc/slurm/slurm.conf":     "mig:closed:56",
		"/etc/slurm/gres.conf":      "slot[0-13]",
		"/etc/slurm/job_submit.lua": `dofile("/usr/share/caelum/job_submit.lua")`,
		"/etc/caelum/caelum.yaml":   "sizing: tightest\n",
		"/etc/caelum/decisions":     "partition gpu\n",
	} {
		if !strings.Contains(first[name], want) {
			t.Errorf("%s does not contain %q:\n%s", name, want, first[name])
		}
	}
	if changed := run(); changed != "0" {
		t.Errorf("the second run reports changed=%s, want 0", changed)
	}
	if !maps.Equal(tree(t, root), first) {
		t.Error("the second run changed files")
	}
	revert(t, root)
}

// revert applies the inverse of the saved patch, and checks that the site's files are as before.
func revert(t *testing.T, root string) {
	t.Helper()
	saved, err := filepath.Glob(filepath.Join(root, "etc/caelum/setup-*.patch"))
	if err != nil || len(saved) != 1 {
		t.Fatalf("the saved patches are %v (%v)", saved, err)
	}
	patch, err := os.ReadFile(saved[0])
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("patch", "-R", "-p1", "-d", "/")
	cmd.Stdin = bytes.NewReader(patch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := tree(t, filepath.Join(root, "etc/slurm")); len(got) != 1 || got["/slurm.conf"] != conf {
		t.Errorf("after patch -R, the files are %q", got)
	}
}

// prepare writes the site's files and the playbook, and builds the program. run runs the playbook and returns the
// number of changes.
func prepare(t *testing.T, dir, root string) (run func(options ...string) string) {
	t.Helper()
	node := gputest.New(t, "A100-40GB", 2)
	for path, text := range map[string]string{
		filepath.Join(root, "etc/slurm/slurm.conf"):                 conf,
		filepath.Join(dir, "play.yml"):                              playbook,
		filepath.Join(dir, "files/usr/share/caelum/job_submit.lua"): "-- Caelum's file\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "files/usr/bin/caelum"), "../../cmd/caelum")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	roles, err := filepath.Abs("roles")
	if err != nil {
		t.Fatal(err)
	}
	return func(options ...string) string {
		t.Helper()
		cmd := exec.Command("ansible-playbook", "-i", "localhost,", filepath.Join(dir, "play.yml"),
			"-e", "caelum_files="+filepath.Join(dir, "files"), "-e", "caelum_root="+root)
		cmd.Args = append(cmd.Args, options...)
		cmd.Env = append(os.Environ(), "ANSIBLE_ROLES_PATH="+roles, "ANSIBLE_LOCALHOST_WARNING=False", "HOME="+dir,
			"NVML_EMULATOR_STATE="+node.State, "LD_LIBRARY_PATH="+node.Build(), "LANG=C.UTF-8")
		out, err := cmd.CombinedOutput()
		found := regexp.MustCompile(`changed=(\d+)`).FindSubmatch(out)
		if err != nil || found == nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(found[1])
	}
}

// tree returns the contents of all files below a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
