package oracle

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Hardware is the content of the emulated GPUs' log (contrib/nvml-emulator/README.md).
type Hardware struct {
	Instances []Instance
	Processes []Process
}

// Instance is a GPU instance. UUID is that of its compute instance, or empty if there was none.
type Instance struct {
	GPU, GI     int
	Profile     string
	Start, Size int // units
	UUID        string
	Born, Died  int64
}

// Process is a CUDA process that held an instance. For a killed process, To is later than the actual end.
type Process struct {
	PID         int
	GPU         int
	Start, Size int // units
	UUID        string
	From, To    int64
	Killed      bool
}

// ReadHardware reads an emulator's log.
func ReadHardware(r io.Reader) (Hardware, error) {
	var h Hardware
	live := map[[2]int]int{} // gpu, gi -> index of the instance
	runs := map[int]int{}    // pid -> index of the process
	s := bufio.NewScanner(r)
	for s.Scan() {
		words := strings.Fields(s.Text())
		if len(words) < 2 {
			continue
		}
		at, err := strconv.ParseInt(words[0], 10, 64)
		if err != nil {
			return h, fmt.Errorf("emulator's log: %w", err)
		}
		v := map[string]string{}
		for _, w := range words[2:] {
			key, value, _ := strings.Cut(w, "=")
			v[key] = value
		}
		number := func(key string) int { n, _ := strconv.Atoi(v[key]); return n }
		place := [2]int{number("gpu"), number("gi")}
		event := words[1]
		if v["rc"] != "SUCCESS" && !strings.HasPrefix(event, "process-") {
			continue
		}
		switch event {
		case "create-gi":
			live[place] = len(h.Instances)
			h.Instances = append(
				h.Instances,
				Instance{
					GPU:     place[0],
					GI:      place[1],
					Profile: v["profile"],
					Start:   number("start"),
					Size:    number("size"),
					Born:    at,
					Died:    Never,
				},
			)
		case "create-ci":
			if k, ok := live[place]; ok {
				h.Instances[k].UUID = v["uuid"]
			}
		case "destroy-gi":
			if k, ok := live[place]; ok {
				h.Instances[k].Died = at
				delete(live, place)
			}
		case "process-start":
			runs[number("pid")] = len(h.Processes)
			h.Processes = append(
				h.Processes,
				Process{
					PID:   number("pid"),
					GPU:   place[0],
					Start: number("start"),
					Size:  number("size"),
					UUID:  v["uuid"],
					From:  at,
					To:    Never,
				},
			)
		case "process-exit", "process-oom", "process-gone":
			if k, ok := runs[number("pid")]; ok {
				h.Processes[k].To, h.Processes[k].Killed = at, event == "process-gone"
				delete(runs, number("pid"))
			}
		case "reset", "lose":
			return h, fmt.Errorf("emulator's log: %s of GPU %d: the oracle does not support this event", event,
				place[0])
		}
	}
	return h, s.Err()
}
