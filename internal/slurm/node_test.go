package slurm

import "testing"

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
