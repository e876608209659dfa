package oracle

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Hardware holds the events in the emulated GPUs' log (contrib/nvml-emulator/README.md).
type Hardware struct {
	Instances []Instance
	Processes []Process
	Switches  []Switch
}

// Instance describes a GPU instance. UUID is the UUID of its last compute instance, or empty if there was none. The
// agent re-creates the compute instance between two users, so that a GPU instance has one compute instance after
// another.
type Instance struct {
	GPU, GI     int
	Profile     string
	Start, Size int // units
	UUID        string
	Born, Died  int64
	CIs         []ComputeInstance
}

// ComputeInstance describes a compute instance of a GPU instance.
type ComputeInstance struct {
	UUID       string
	Born, Died int64
}

// offers reports whether the instance had the compute instance with the given UUID throughout a lease.
func (in Instance) offers(l Lease) bool {
	all := in.CIs
	if len(all) == 0 {
		all = []ComputeInstance{{in.UUID, in.Born, in.Died}}
	}
	return slices.ContainsFunc(all, func(ci ComputeInstance) bool {
		return ci.UUID == l.UUID && ci.Born < l.From && (ci.Died > l.To || l.To == Never && ci.Died == Never)
	})
}

// Process describes a CUDA process that used an instance. If it was killed, To is later than its actual end.
type Process struct {
	PID         int
	GPU         int
	Start, Size int // units
	UUID        string
	From, To    int64
	Killed      bool
}

// ReadHardware parses an emulator's log.
func ReadHardware(r io.Reader) (Hardware, error) {
	h := hardwareReader{instances: map[[2]int]int{}, processes: map[[2]int]int{}}
	s := bufio.NewScanner(r)
	for s.Scan() {
		if err := h.add(strings.Fields(s.Text())); err != nil {
			return h.Hardware, fmt.Errorf("emulator's log: %w", err)
		}
	}
	return h.Hardware, s.Err()
}

// hardwareReader is the state of ReadHardware between two lines: the indices of the existing instances, by GPU and id,
// and of the running processes, by pid and GPU.
type hardwareReader struct {
	Hardware
	instances map[[2]int]int
	processes map[[2]int]int
}

// add adds the event in a line, which consists of the time, the event and key=value pairs. Failed calls are ignored.
func (h *hardwareReader) add(words []string) error {
	if len(words) < 2 {
		return nil
	}
	at, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		return err
	}
	event := words[1]
	v := map[string]string{}
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		v[key] = value
	}
	number := func(key string) int { n, _ := strconv.Atoi(v[key]); return n }
	if v["rc"] != "SUCCESS" && !strings.HasPrefix(event, "process-") {
		return nil
	}
	gpu, start, size := number("gpu"), number("start"), number("size")
	place, process := [2]int{gpu, number("gi")}, [2]int{number("pid"), gpu}
	switch event {
	case "create-gi":
		h.instances[place] = len(h.Instances)
		h.Instances = append(h.Instances,
			Instance{GPU: gpu, GI: place[1], Profile: v["profile"], Start: start, Size: size, Born: at, Died: Never})
	case "create-ci":
		if k, ok := h.instances[place]; ok {
			h.Instances[k].UUID = v["uuid"]
			h.Instances[k].CIs = append(h.Instances[k].CIs, ComputeInstance{v["uuid"], at, Never})
		}
	case "destroy-ci":
		if k, ok := h.instances[place]; ok && len(h.Instances[k].CIs) > 0 {
			h.Instances[k].CIs[len(h.Instances[k].CIs)-1].Died = at
		}
	case "destroy-gi":
		if k, ok := h.instances[place]; ok {
			h.Instances[k].Died = at
			delete(h.instances, place)
		}
	case "process-start":
		h.processes[process] = len(h.Processes)
		h.Processes = append(h.Processes,
			Process{PID: process[0], GPU: gpu, Start: start, Size: size, UUID: v["uuid"], From: at, To: Never})
	case "process-exit", "process-oom", "process-gone":
		if k, ok := h.processes[process]; ok {
			h.Processes[k].To, h.Processes[k].Killed = at, event == "process-gone"
			delete(h.processes, process)
		}
	case "mig-mode":
		h.modeSet(gpu, v["mig"], at)
	case "reset", "lose":
		return fmt.Errorf("the oracle does not support the event %s of GPU %d", event, gpu)
	}
	return nil
}
