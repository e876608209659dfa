package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// InstalledPlugin is an installed spank_caelum.so and the Slurm release for which it was built.
type InstalledPlugin struct {
	File string `json:"file"`
	// Slurm is the release with the patch version, for example 22.05.8, or an empty string if it could not be read from
	// the file.
	Slurm string `json:"slurm"`
}

// pluginDirs lists patterns that match Slurm's plugin directory, as used by Debian's packages, SchedMD's Debian
// packages, Enterprise Linux, Slurm's default configuration, and builds with --prefix=/opt/slurm, in this order.
var pluginDirs = []string{
	"/usr/lib/*/slurm-wlm", "/usr/lib/*/slurm", "/usr/lib64/slurm", "/usr/local/lib/slurm", "/opt/slurm/lib/slurm",
}

// InstalledPlugins returns the plugins in the directories where packages install Slurm's plugins. It does not read
// plugstack.conf, so it also works on hosts where Slurm is not configured.
func InstalledPlugins() []InstalledPlugin { return PluginsIn(pluginDirs) }

// PluginsIn returns the plugins in the given directories, which may be patterns.
func PluginsIn(dirs []string) []InstalledPlugin {
	var found []InstalledPlugin
	for _, dir := range dirs {
		files, _ := filepath.Glob(filepath.Join(dir, pluginName))
		for _, path := range slices.Sorted(slices.Values(files)) {
			found = append(found, InstalledPlugin{path, builtFor(path)})
		}
	}
	return found
}

// builtFor returns the Slurm release for which the plugin at path was built, or an empty string if it could not be
// read.
func builtFor(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	version, err := pluginVersion(file)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s.%d", release(version), version&0xff)
}
