//go:build e2e

package e2eattacks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// library is the source of an NVML library that runs one of the attacker's commands in the process that loads it.
const library = `#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void own(void)
{
	FILE *f = fopen("MARKER", "w");
	if (f) { fprintf(f, "uid %d\n", (int)geteuid()); fclose(f); }
}
`

// TestConfigurationOfAnother checks that the agent, which runs as root, does not load a library that another owner of
// /etc/caelum has set in caelum.yaml. At sites where the watcher wrote the decision table to /etc/caelum, SlurmUser
// owns this directory.
func TestConfigurationOfAnother(t *testing.T) {
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1})
	home := s.Home()
	marker := filepath.Join(home, "marker")
	if err := os.WriteFile(filepath.Join(home, "evil.c"), []byte(strings.ReplaceAll(library, "MARKER", marker)),
		0o644); err != nil {
		t.Fatal(err)
	}
	s.Must("", attacker, "gcc", "-shared", "-fPIC", "-o", "evil.so", "evil.c")
	s.Must("n1", "root", "cp", "/etc/caelum/caelum.yaml", "/run/good.yaml")
	s.Must("n1", "root", "chown", attacker, "/etc/caelum")
	s.Must(
		"n1",
		attacker,
		"sh",
		"-c",
		"echo nvml_library: "+home+"/evil.so >/etc/caelum/new && mv -f /etc/caelum/new /etc/caelum/caelum.yaml",
	)
	restart := func(what string) {
		s.RestartUnit("agent-n1") // the error means that the agent does not start
		if text, err := os.ReadFile(marker); err == nil {
			t.Errorf("%s: the attacker's library ran in the agent: %s", what, text)
			os.Remove(marker)
		}
	}
	restart("caelum.yaml in a directory that the attacker owns")
	s.Within("the agent has logged the reason for its end", func() bool {
		log, _ := s.Log("agent-n1")
		return strings.Contains(log, "couldn't use /etc/caelum/caelum.yaml: /etc/caelum belongs to "+attacker)
	})

	// The next configuration file belongs to root, but names a library that the attacker can change.
	s.StopUnit("agent-n1")
	s.Must("n1", "root", "chown", "root:root", "/etc/caelum", "/etc/caelum/caelum.yaml")
	restart("library that the attacker owns")

	s.StopUnit("agent-n1")
	s.Must("n1", "root", "mv", "/run/good.yaml", "/etc/caelum/caelum.yaml")
	if err := s.RestartUnit("agent-n1"); err != nil {
		t.Errorf("the agent did not start with root's configuration: %v", err)
	}
}
