package slurm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestNodeWithoutGRES checks that parseNode accepts nodes without GRES and nodes whose GPUs slurmd has not found. Since
// 24.05, scontrol prints no GresUsed for them. A node with gres/mig but no GresUsed must cause an error, because its
// counts are unknown.
func TestNodeWithoutGRES(t *testing.T) {
	const head = "NodeName=c1 CoresPerSocket=1 \n   CPUAlloc=0 CPUEfctv=1 CPUTot=1 CPULoad=0.00\n"
	const tail = "   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n"
	n, err := parseNode(head+"   Gres=(null)\n"+tail, "c1")
	if err != nil || len(n.Gres) != 0 || len(n.GresUsed) != 0 {
		t.Errorf("without GRES: %+v, %v", n, err)
	}
	n, err = parseNode(head+"   Gres=gpu:a100:7\n"+tail, "c1")
	if err != nil || len(n.Gres) != 1 || len(n.GresUsed) != 0 {
		t.Errorf("without available GRES: %+v, %v", n, err)
	}
	if _, err := parseNode(head+"   Gres=gpu:a100:7,mig:1g.5gb:0,mig:closed:7\n"+tail, "c1"); err == nil {
		t.Error("no error for a node with gres/mig and without GresUsed")
	}
}

// TestShowNode checks that Node and NamedNodes run caelum-show-node, and that they run scontrol if caelum-show-node
// does not exist, cannot be executed or does not find Slurm's library, but not if it reports an error from slurmctld.
func TestShowNode(t *testing.T) {
	dir := t.TempDir()
	program := func(name, script string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const prints = `for n in $(echo "$NODES" | tr , " "); do
printf 'NodeName=%s CoresPerSocket=1\n   State=IDLE Weight=1\n   Gres=(null)\n   Comment=%s\n\n' $n "$0"
done`
	scontrol := program("scontrol", "NODES=$4\n"+prints, 0o755)
	for _, k := range []struct{ name, path, comment string }{
		{"works", program("works", `NODES="$*"`+"\n"+prints, 0o755), filepath.Join(dir, "works")},
		{"missing", filepath.Join(dir, "none"), scontrol},
		{"not executable", program("mode", "", 0o644), scontrol},
		{"another library", program("ld", "exit 127", 0o755), scontrol},
	} {
		c := New(Options{Scontrol: scontrol, ShowNode: k.path})
		if err := c.CheckShowNode(context.Background()); (err != nil) != (k.comment == scontrol) {
			t.Errorf("%s: CheckShowNode returned %v", k.name, err)
		}
		n, err := c.Node(context.Background(), "n1")
		if err != nil || n.Name != "n1" || n.Comment != k.comment || n.Asked.IsZero() {
			t.Errorf("%s: %+v, %v", k.name, n, err)
		}
		all, err := c.NamedNodes(context.Background(), "n2", "n1")
		if err != nil || len(all) != 2 || all[0].Name != "n2" || all[1].Comment != k.comment || all[1].Asked.IsZero() {
			t.Errorf("%s: %+v, %v", k.name, all, err)
		}
	}
	for script, want := range map[string]error{
		"echo Node n1 not found; exit 1":                                               ErrNoNode,
		"echo 'slurm_load_node error: Unable to contact slurm controller' >&2; exit 1": ErrUnreachable,
	} {
		c := New(Options{Scontrol: scontrol, ShowNode: program("fails", script, 0o755)})
		if _, err := c.Node(context.Background(), "n1"); !errors.Is(err, want) {
			t.Errorf("%s: %v", script, err)
		}
	}
}
