package doctor

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"caelum/internal/node/api"
)

const pluginName, objectName = "spank_caelum.so", "libcaelum_spank.so"

// Plugin describes the SPANK plugin's line in plugstack.conf and the plugin's files.
type Plugin struct {
	// Plugstack is the path of plugstack.conf.
	Plugstack string
	// Named is true if plugstack.conf or an included file contains a line for the plugin. Path is the path in this
	// line, Args holds its key=value arguments, and Required is true if it begins with "required".
	Named, Required bool
	Path            string
	Args            map[string]string
	// File is the path of the plugin's file, or empty if it was not found. Version is the file's plugin_version, in the
	// format of SLURM_VERSION_NUM: major<<16 | minor<<8 | micro.
	File    string
	Version uint32
	// Problem explains why Version could not be read.
	Problem string
	// Object is the path from which the plugin loads the Go object. ObjectFound is true if this file exists.
	Object      string
	ObjectFound bool
}

const installPlugin = "build Caelum for this Slurm release, and run `make install` on every host that reads this " +
	"plugstack.conf"

func plugin(f *Facts) []Finding {
	p := f.Plugin
	if !p.Named {
		return []Finding{fault(
			p.Plugstack+" does not name "+pluginName+": jobs start without slices",
			"add the line `required "+pluginName+"` to "+p.Plugstack,
		)}
	}
	if p.File == "" {
		return []Finding{fault(
			fmt.Sprintf("%s names %s, which does not exist or cannot be read (PluginDir is %s): Slurm cannot load the "+
				"plugin",
				p.Plugstack, p.Path, f.Config.Values["PluginDir"]),
			installPlugin,
		)}
	}
	var found []Finding
	if !p.Required {
		found = append(found, fault(
			p.Plugstack+" marks the plugin as optional: a job that cannot get its slice runs without it "+
				"instead of failing",
			"replace `optional` with `required` in the plugin's line",
		))
	}
	found = append(found, f.pluginRelease()...)
	if !p.ObjectFound {
		found = append(found, fault(
			p.Object+", which the plugin loads, does not exist: the prolog of each job with slices fails, and Slurm "+
				"drains the node",
			installPlugin,
		))
	}
	return append(found, f.pluginRunDir()...)
}

// pluginRelease reports a plugin that was built for a release other than slurmd's, because slurmd does not load such a
// plugin. slurmd's release may be older than slurmctld's.
func (f *Facts) pluginRelease() []Finding {
	p := f.Plugin
	loads, runs := f.Node.Version, "slurmd "+f.Node.Version+" runs here"
	if loads == "" {
		loads, runs = f.Config.Version(), "Slurm "+f.Config.Version()+" runs"
	}
	if p.Problem != "" {
		return []Finding{fault(fmt.Sprintf("%s is not a Slurm plugin: %s; Slurm cannot load the "+
			"file", p.File, p.Problem), installPlugin)}
	}
	built := release(p.Version)
	if loads == "" {
		return nil // NodeFaults does not read the release from Slurm
	}
	return findingIf(
		fault(
			fmt.Sprintf("%s was built for Slurm %s, but %s: Slurm does not load it", p.File, built, runs),
			installPlugin,
		),
		built != majorMinor(loads),
	)
}

// pluginRunDir compares the plugin's run_dir with the agent's. There is no finding if f.RunDir is empty, because the
// agent's run_dir is then unknown.
func (f *Facts) pluginRunDir() []Finding {
	dir, ok := f.Plugin.Args["run_dir"]
	if !ok {
		dir = api.DefaultRunDir
	}
	return findingIf(
		fault(
			fmt.Sprintf("the plugin looks for the agent in %s, but the agent's run_dir is %s: jobs get no slices", dir,
				f.RunDir),
			"set run_dir= in "+f.Plugin.Plugstack+" and run_dir: in caelum.yaml to the same directory",
		),
		f.RunDir != "" && filepath.Clean(dir) != filepath.Clean(f.RunDir),
	)
}

// release formats the release in a plugin_version, for example as 22.05.
func release(version uint32) string {
	return fmt.Sprintf("%02d.%02d", version>>16&0xff, version>>8&0xff)
}

// majorMinor returns the release to which a version belongs, for example 22.05 for 22.05.8.
func majorMinor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// pluginVersion reads plugin_version, an unsigned int that a shared object exports and that Slurm compares with its own
// version when it loads a plugin.
func pluginVersion(r io.ReaderAt) (uint32, error) {
	file, err := elf.NewFile(r)
	if err != nil {
		return 0, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name != "plugin_version" || int(s.Section) >= len(file.Sections) || s.Section == elf.SHN_UNDEF {
			continue
		}
		section := file.Sections[s.Section]
		data := make([]byte, 4)
		if _, err := section.ReadAt(data, int64(s.Value-section.Addr)); err != nil {
			return 0, fmt.Errorf("plugin_version: %w", err)
		}
		if bytes.Equal(data, make([]byte, 4)) {
			return 0, fmt.Errorf("plugin_version is 0")
		}
		return file.ByteOrder.Uint32(data), nil
	}
	return 0, fmt.Errorf("the file does not export plugin_version")
}

// readPlugin finds plugstack.conf in the same way as Slurm (plugstack.c, 22.05.8): the value of PlugStackConfig is its
// path. If that is not set, the file is in slurm.conf's directory. In a configless cluster, slurmd stores slurm.conf in
// /run/slurm/conf.
func (f *Facts) readPlugin() {
	var paths []string
	if path := f.Config.Values["PlugStackConfig"]; path != "" {
		paths = []string{path}
	} else {
		for _, conf := range []string{
			os.Getenv("SLURM_CONF"),
			f.Config.Values["SLURM_CONF"],
			"/run/slurm/conf/slurm.conf",
			"/etc/slurm/slurm.conf",
		} {
			if conf != "" {
				paths = append(paths, filepath.Join(filepath.Dir(conf), "plugstack.conf"))
			}
		}
	}
	for _, path := range paths {
		if err := f.Plugin.find(path, 0); err == nil {
			f.Plugin.Plugstack = path
			f.Plugin.resolve(f.Config.Values["PluginDir"])
			return
		} else if !errors.Is(err, fs.ErrNotExist) {
			f.Missing[Plugstack] = fault(
				fmt.Sprintf("plugstack.conf cannot be read (%v), so the plugin cannot be checked", err),
				"make the file readable by this user, or run `caelum doctor` as root",
			)
			return
		}
	}
	f.Missing[Plugstack] = fault(
		"there is no plugstack.conf (searched: "+strings.Join(paths, ", ")+"): jobs start without slices",
		"on every host of the cluster, create plugstack.conf with the line `required "+pluginName+"`",
	)
}

// maxIncludes limits the nesting depth of includes, because files can include each other.
const maxIncludes = 8

// find searches the file at path and its included files for the plugin's line.
func (p *Plugin) find(path string, depth int) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line) // an option, a path and the plugin's arguments
		switch {
		case len(words) < 2:
		case words[0] == "include" && depth < maxIncludes:
			pattern := words[1]
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(path), pattern)
			}
			files, _ := filepath.Glob(pattern)
			for _, file := range files {
				if err := p.find(file, depth+1); err != nil {
					return fmt.Errorf("%s includes a file that cannot be read: %s", path, err)
				}
			}
		case filepath.Base(words[1]) == pluginName:
			p.Named, p.Required, p.Path, p.Args = true, words[0] == "required", words[1], map[string]string{}
			for _, w := range words[2:] {
				if key, value, ok := strings.Cut(w, "="); ok {
					p.Args[key] = value
				}
			}
		}
	}
	return nil
}

// resolve finds the plugin's files. pluginDir is a directory or a colon-separated list of directories.
func (p *Plugin) resolve(pluginDir string) {
	candidates := []string{p.Path}
	if !filepath.IsAbs(p.Path) {
		candidates = nil
		for dir := range strings.SplitSeq(pluginDir, ":") {
			candidates = append(candidates, filepath.Join(dir, p.Path))
		}
	}
	for _, path := range candidates {
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		defer file.Close()
		p.File = path
		if p.Version, err = pluginVersion(file); err != nil {
			p.Problem = err.Error()
		}
		p.Object = p.Args["job_object"]
		if p.Object == "" {
			p.Object = filepath.Join(filepath.Dir(path), objectName)
		}
		_, err = os.Stat(p.Object)
		p.ObjectFound = err == nil
		return
	}
}
