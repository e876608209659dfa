package doctor

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

const pluginName, objectName = "spank_caelum.so", "libcaelum_spank.so"

// Plugin is what plugstack.conf says of the SPANK plugin, and what its files are.
type Plugin struct {
	// Plugstack is the file that was read.
	Plugstack string
	// Named is whether it names the plugin, with Path as written there and its words key=value.
	Named, Required bool
	Path            string
	Args            map[string]string
	// File is where it was found, or empty; Version is its plugin_version, as SLURM_VERSION_NUM: major<<16 | minor<<8 |
	// micro.
	File    string
	Version uint32
	// Problem is why Version could not be read.
	Problem string
	// Object is where the Go object must be, and whether it is.
	Object      string
	ObjectFound bool
}

func plugin(f *Facts) []Finding {
	p := f.Plugin
	const install = "`make install` of Caelum built for this Slurm release, on every host that reads this plugstack.conf"
	if !p.Named {
		return []Finding{
			fault(
				p.Plugstack+" does not name "+pluginName+": jobs start without slices",
				"add the line `required "+pluginName+"`",
			),
		}
	}
	if p.File == "" {
		return []Finding{
			fault(
				fmt.Sprintf(
					"%s names %s, which is not there (PluginDir is %s)",
					p.Plugstack,
					p.Path,
					f.Config.Values["PluginDir"],
				),
				install,
			),
		}
	}
	var found []Finding
	if !p.Required {
		found = append(
			found,
			fault(
				p.Plugstack+" has the plugin as optional: a job whose slice cannot be had would run without one instead of being stopped",
				"write `required` instead",
			),
		)
	}
	// slurmd loads it, whose release may be older than slurmctld's.
	loads, runs := f.Node.Version, "slurmd "+f.Node.Version+" runs here"
	if loads == "" {
		loads, runs = f.Config.Version(), "Slurm "+f.Config.Version()+" runs"
	}
	switch built, running := release(p.Version), majorMinor(loads); {
	case p.Problem != "":
		found = append(found, fault(fmt.Sprintf("%s is no plugin: %s", p.File, p.Problem), install))
	case built != running:
		found = append(
			found,
			fault(fmt.Sprintf("%s was built for Slurm %s, and %s: it is not loaded", p.File, built, runs), install),
		)
	}
	if !p.ObjectFound {
		found = append(found, fault(p.Object+" is not there: every prolog fails", install))
	}
	if dir, ok := p.Args["run_dir"]; f.RunDir != "" &&
		(ok && filepath.Clean(dir) != filepath.Clean(f.RunDir) || !ok && f.RunDir != defaultRunDir) {
		if !ok {
			dir = defaultRunDir
		}
		found = append(
			found,
			fault(
				fmt.Sprintf("the plugin looks for the agent in %s, which is in %s", dir, f.RunDir),
				"give both the same: run_dir= in "+p.Plugstack+", run_dir: in caelum.yaml",
			),
		)
	}
	return found
}

func release(version uint32) string {
	return fmt.Sprintf("%02d.%02d", version>>16&0xff, version>>8&0xff)
}

// majorMinor is 22.05 of 22.05.8.
func majorMinor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// stackLine is one line of plugstack.conf as Slurm reads it: option, path, words.
type stackLine struct {
	option, path string
	words        []string
}

// parsePlugstack reads lines; from # on all is comment.
func parsePlugstack(text string) []stackLine {
	var lines []stackLine
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if w := strings.Fields(line); len(w) >= 2 {
			lines = append(lines, stackLine{w[0], w[1], w[2:]})
		}
	}
	return lines
}

// wordsOf are the words key=value.
func wordsOf(words []string) map[string]string {
	m := map[string]string{}
	for _, w := range words {
		if key, value, ok := strings.Cut(w, "="); ok {
			m[key] = value
		}
	}
	return m
}

// pluginVersion reads the exported unsigned int plugin_version of a shared object, which Slurm compares when it loads
// it.
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
	return 0, fmt.Errorf("it exports no plugin_version")
}
