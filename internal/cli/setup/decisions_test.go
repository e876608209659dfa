package setup

import "testing"

// TestMaxCPUs checks the largest number of CPUs of the nodes with GPUs, for every form of a NodeName line.
func TestMaxCPUs(t *testing.T) {
	for text, want := range map[string]int{
		"NodeName=n1 CPUs=64 Gres=gpu:4\nNodeName=n2 Procs=96 Gres=gpu:v100:2\n":                              96,
		"NodeName=n1 Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 Gres=gpu:4\n":                               128,
		"NodeName=n1 Boards=2 SocketsPerBoard=2 CoresPerSocket=8 Gres=gpu:4\n":                                32,
		"NodeName=DEFAULT CPUs=48\nNodeName=n1 Gres=gpu:4\nNodeName=c1 CPUs=256\n":                            48,
		"NodeName=n1 CPUs=64 Gres=gpu:4\nNodeName=n2 Gres=gpu:a100:14,mig:1g.5gb:0,mig:closed:56\n":           0,
		"NodeName=n1 CPUs=64 Gres=gpu:4\nNodeName=mig-catalog1 CPUs=512 State=FUTURE Gres=gpu:4,mig:1g.5gb:4": 64,
	} {
		m := &merger{Request: Request{Nodes: "n1"}, managed: map[string]bool{"n1": true}}
		nodes := m.nodeLines(parse(&file{path: "slurm.conf", old: []byte(text)}))
		if got := m.maxCPUs(nodes); got != want {
			t.Errorf("%s%d CPUs instead of %d", text, got, want)
		}
	}
}
