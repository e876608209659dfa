package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestPlugstackThroughIncludes(t *testing.T) {
	dir := t.TempDir()
	top := filepath.Join(dir, "plugstack.conf")
	write(t, top, "# required spank_caelum.so\noptional other.so a=b\ninclude plugstack.conf.d/*\ninclude "+top+"\n")
	write(
		t,
		filepath.Join(dir, "plugstack.conf.d", "caelum.conf"),
		"required\tspank_caelum.so wait=30 run_dir=/run/x # ours\n",
	)
	lib := filepath.Join(dir, "lib")
	write(t, filepath.Join(lib, pluginName), "not a shared object")

	var p Plugin
	if err := p.find(top, 0); err != nil || !p.Named || !p.Required || p.Path != pluginName || p.Args["wait"] != "30" ||
		p.Args["run_dir"] != "/run/x" {
		t.Fatalf("%+v %v", p, err)
	}
	p.resolve("/nowhere:" + lib)
	if p.File != filepath.Join(lib, pluginName) || p.Problem == "" || p.ObjectFound {
		t.Errorf("%+v", p)
	}
	write(t, filepath.Join(lib, objectName), "")
	if p.resolve(lib); !p.ObjectFound {
		t.Errorf("%+v", p)
	}
	if p = (Plugin{Path: "/elsewhere/" + pluginName}); p.File != "" {
		t.Errorf("%+v", p)
	}
	if p.resolve(lib); p.File != "" {
		t.Errorf("resolve searched PluginDir for a plugin with an absolute path: %+v", p)
	}
}

// buildPlugin creates a shared object with the plugin_version of Slurm 22.05.8.
func buildPlugin(t *testing.T, object string) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "p.c")
	write(t, source, "const char plugin_name[] = \"x\"; const unsigned int plugin_version = 0x160508;\n")
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", object, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestPluginVersion(t *testing.T) {
	dir := t.TempDir()
	object := filepath.Join(dir, "p.so")
	buildPlugin(t, object)
	file, err := os.Open(object)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if v, err := pluginVersion(file); err != nil || v != 0x160508 || release(v) != "22.05" {
		t.Errorf("%x %v", v, err)
	}
	plugin := filepath.Join(dir, "x", "slurm", "spank_caelum.so")
	if err := os.MkdirAll(filepath.Dir(plugin), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(object, plugin); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "spank_caelum.so"), "text")
	got := PluginsIn([]string{filepath.Join(dir, "*", "slurm"), dir, filepath.Join(dir, "none")})
	want := []InstalledPlugin{{plugin, "22.05.8"}, {filepath.Join(dir, "spank_caelum.so"), ""}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestPluginVersionNeedsTheSymbol(t *testing.T) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	if v, err := pluginVersion(self); err == nil {
		t.Errorf("pluginVersion returned %s for an executable without the symbol", release(v))
	}
	if v, err := pluginVersion(strings.NewReader("text")); err == nil {
		t.Errorf("pluginVersion returned %s for a text file", release(v))
	}
	if got := release(22<<16 | 5<<8 | 8); got != "22.05" || majorMinor("22.05.8") != got || majorMinor("24") != "24" {
		t.Errorf("release returned %s, and majorMinor returned %s and %s", got, majorMinor("22.05.8"), majorMinor("24"))
	}
}

// TestLimitsOnGPUs tests the parsing of associations and QOS in the output of sacctmgr -nP (22.05.8).
func TestLimitsOnGPUs(t *testing.T) {
	got := parseLimits("assoc", []string{"Account", "User", "GrpTRES", "MaxTRES"},
		"root|||\nresearch||cpu=10,gres/gpu=4,gres/mig:1g.5gb=3|\nresearch|user1||gres/gpu:a100=1\nodd\n")
	want := []string{
		"account research GrpTRES gres/gpu=4",
		"user user1 of account research MaxTRES gres/gpu:a100=1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	got = parseLimits("qos", []string{"Name", "GrpTRES", "MaxTRESPerUser", "MaxTRES"}, "normal||gres/gpu=2|\n")
	if want := []string{"QOS normal MaxTRESPerUser gres/gpu=2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestReadDriver(t *testing.T) {
	proc, dev := t.TempDir(), t.TempDir()
	if _, err := readDriver(proc, dev, 1); err == nil {
		t.Error("readDriver returned no error without a driver")
	}
	params := filepath.Join(proc, "driver/nvidia/params")
	write(t, params, "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n")
	write(t, filepath.Join(dev, "nvidia0"), "")
	write(t, filepath.Join(dev, "nvidiactl"), "")
	if d, err := readDriver(proc, dev, 1); err != nil || !d.Modifies || len(d.Missing) > 0 {
		t.Errorf("%+v, %v", d, err)
	}
	write(t, params, "ModifyDeviceFiles: 0\n")
	if err := os.Remove(filepath.Join(dev, "nvidiactl")); err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(dev, "nvidiactl"), filepath.Join(dev, "nvidia<N>")}
	if d, err := readDriver(proc, dev, 2); err != nil || d.Modifies || !slices.Equal(d.Missing, want) {
		t.Errorf("%+v, %v", d, err)
	}
	write(t, params, "ResmanDebugLevel: 1\n")
	if d, err := readDriver(proc, dev, 2); err == nil {
		t.Errorf("readDriver returned no error without the parameter: %+v", d)
	}
}

func TestReadTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "decisions")
	if _, err := readTable(path); err == nil {
		t.Error("readTable returned no error without a table")
	}
	write(t, path, "caelum-decisions 1 7\npartition gpu\nprofile 1g.5gb 4864\ndefault 1g.5gb\n")
	if got, err := readTable(path); err != nil || got.Problem != "" || got.Default != "1g.5gb" ||
		got.Mode.Perm() != 0o644 {
		t.Errorf("%+v, %v", got, err)
	}
	write(t, path, "caelum-decisions 1 7\npartition gpu\n")
	if got, err := readTable(path); err != nil || got.Problem != "the default line is missing" || got.Path != path {
		t.Errorf("%+v, %v", got, err)
	}
}
