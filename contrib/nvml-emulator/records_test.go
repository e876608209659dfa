package nvmlemulator_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// The records in testdata/driver-records.jsonl are facts about real GPUs, with their sources (README.md, "Records of
// real GPUs"). TestRecords replays each of them on the emulated GPU model.
var recordsFile = flag.String("records", "testdata/driver-records.jsonl", "file with records of real GPUs")

type record struct {
	ID, Source, GPU, Driver, Kind, Note string
	Data                                json.RawMessage
}

// drift lists the differences from the emulated GPU models that come from other drivers, by record and profile.
var drift = map[string]string{
	"r20 1g.23gb":    "22.0 GiB; later drivers report 20.5 GiB (mig-parted#187)",
	"r20 1g.23gb+me": "22.0 GiB; later drivers report 20.5 GiB (mig-parted#187)",
	"r21 1g.24gb":    "the name and 20.0 GiB; later drivers report 1g.23gb with 22.0 GiB (mig-parted#227)",
	"r21 1g.24gb+me": "the name and 20.0 GiB; later drivers report 1g.23gb+me with 22.0 GiB (mig-parted#227)",
}

// unemulated lists the records that cannot be replayed, with the reason.
var unemulated = map[string]string{
	"r102 profiler-device":                              "the emulator has no such capability",
	"r70 1_SLICE_REV2 GI":                               "names no profile; r62, r64 and r80 do",
	"r84 nvidia-smi, 8 GPUs, 1g.23gb everywhere":        "a duration; rules_latency_ms uses it",
	"r85 DeviceGetHandleByUUID without a cached handle": "a duration",
	"r85 walking all MIG devices of a GPU under load":   "a duration",
	"r85 gi.Destroy":                                    "a duration",
	"r96 A100":                                          "the training of NVLinks is not emulated",
	"r96 H100+":                                         "the training of NVLinks is not emulated",
	"r97 uid":                                           "describes the process of r97",
	"r97 euid of modprobe":                              "describes the process of r97",
	"r98 geteuid":                                       "describes the process of r98",
	"r98 opens":                                         "the emulator knows its major number; r97 has mig/config",
}

func TestRecords(t *testing.T) {
	data, err := os.ReadFile(*recordsFile)
	if err != nil {
		t.Fatal(err)
	}
	builtIn := *recordsFile == flag.Lookup("records").DefValue
	counts := map[string]int{}
	for line := range bytes.Lines(data) {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		t.Run(r.ID, func(t *testing.T) {
			p := &replay{T: t, record: r, builtIn: builtIn}
			p.run()
			counts[r.Kind+" compared"] += p.compared
			counts[r.Kind+" drift"] += p.drifted
			counts[r.Kind+" not replayed"] += p.left
		})
	}
	for _, kind := range strings.Fields("lgip lgipp lgi order ci devmem caps capfile error behaviour latency") {
		t.Logf("%-10s %3d facts compared, %d documented drift, %d not replayed",
			kind, counts[kind+" compared"], counts[kind+" drift"], counts[kind+" not replayed"])
	}
}

// replay replays one record.
type replay struct {
	*testing.T
	record
	builtIn                 bool
	compared, drifted, left int
}

func (p *replay) run() {
	switch p.Kind {
	case "lgip":
		p.lgip()
	case "lgipp":
		p.lgipp()
	case "lgi":
		p.onEitherMap(p.lgi)
	case "order":
		p.onEitherMap(p.order)
	case "ci":
		p.ci()
	case "devmem":
		p.devmem()
	case "caps":
		p.caps()
	case "capfile":
		p.capfile()
	case "error", "behaviour", "latency":
		p.facts()
	default:
		p.Errorf("unknown kind %q", p.Kind)
	}
}

// model returns the emulated GPU model of a record, or one on which a record about any GPU is replayed.
func (p *replay) model() string {
	for _, b := range readModels(p.T) {
		if b.name == p.GPU {
			return b.name
		}
	}
	if slices.Contains([]string{"lgip", "lgipp", "lgi", "order", "ci", "devmem"}, p.Kind) {
		p.Fatalf("models.txt lacks the GPU model %s", p.GPU)
	}
	return "A100-40GB"
}

func (p *replay) decode(to any) {
	p.Helper()
	if err := json.Unmarshal(p.Data, to); err != nil {
		p.Fatal(err)
	}
}

// same compares a value with a recorded one, which may be null.
func (p *replay) same(what string, got, want any) {
	p.Helper()
	if want == nil {
		return
	}
	p.compared++
	if fmt.Sprint(got) != fmt.Sprint(want) {
		p.Errorf("%s is %v, and the real GPU has %v", what, got, want)
	}
}

// near compares memory sizes, which differ between drivers by up to 7%.
func (p *replay) near(what string, got float64, want any) {
	p.Helper()
	n, ok := want.(float64)
	if !ok {
		return
	}
	p.compared++
	if math.Abs(got-n) > 0.07*n {
		p.Errorf("%s is %.2f, and the real GPU has %.2f", what, got, n)
	}
}

// differs reports whether a documented drift explains the differences of a profile.
func (p *replay) differs(profile string) bool {
	why, ok := drift[p.ID+" "+profile]
	if ok && p.builtIn {
		p.Logf("drift of %s: %s", profile, why)
		p.drifted++
	}
	return ok && p.builtIn
}

// rows returns the rows of a record that name a profile.
func (p *replay) rows() (named [][]any) {
	p.Helper()
	var all [][]any
	p.decode(&all)
	for _, row := range all {
		if _, ok := row[0].(string); ok {
			named = append(named, row)
		} else {
			p.Logf("not replayed: %v names no profile", row)
			p.left++
		}
	}
	return named
}

func (p *replay) lgip() {
	m := newMachine(p.T, "--board", p.model())
	for _, row := range p.rows() {
		name := row[0].(string)
		if p.differs(name) {
			row[3] = nil // the memory
		}
		id, ok := row[1].(float64)
		if !ok {
			id = float64(m.profile(m.device(0), name).Id)
		}
		info, ret := m.device(0).GetGpuInstanceProfileInfoByIdV(int(id)).V2()
		if ret != nvml.SUCCESS {
			p.Errorf("profile id %v of %s: %v", row[1], name, ret)
			continue
		}
		if !strings.HasPrefix(drift[p.ID+" "+name], "the name") || !p.builtIn {
			p.same("the name of profile "+fmt.Sprint(row[1]), text(info.Name[:]), "MIG "+name)
		}
		p.same("the limit of "+name, info.InstanceCount, row[2])
		p.near("the memory of "+name+" in GiB", float64(info.MemorySizeMB)/1024, row[3])
		for i, got := range []uint32{
			info.MultiprocessorCount, info.CopyEngineCount, info.DecoderCount, info.EncoderCount, info.JpegCount,
			info.OfaCount,
		} {
			what := []string{"SMs", "CEs", "DECs", "ENCs", "JPEGs", "OFAs"}[i]
			p.same("the number of "+what+" of "+name, got, row[4+i])
		}
	}
}

func (p *replay) lgipp() {
	m := newMachine(p.T, "--board", p.model())
	var profiles map[string][]any
	p.decode(&profiles)
	for id, row := range profiles {
		var info nvml.GpuInstanceProfileInfo
		fmt.Sscan(id, &info.Id)
		info.InstanceCount = 16 // the size of the buffer in go-nvml
		places, ret := m.device(0).GetGpuInstancePossiblePlacements(&info)
		if ret != nvml.SUCCESS {
			p.Errorf("placements of profile %s: %v", id, ret)
			continue
		}
		var starts []any
		for _, at := range places {
			starts = append(starts, at.Start)
			p.same("the size of profile "+id, at.Size, row[1])
		}
		p.same("the starts of profile "+id, starts, row[0])
	}
}

// onEitherMap replays a record on a GPU with each of the two orders of instance ids. One of them must fit.
func (p *replay) onEitherMap(run func(m *machine) string) {
	model := p.model()
	var all []string
	for _, swap := range []string{"none", "all"} {
		why := ""
		p.Run(swap, func(t *testing.T) { why = run(newMachine(t, "--board", model, "--swap-halves", swap)) })
		if why == "" {
			p.compared++
			return
		}
		all = append(all, why)
	}
	p.Errorf("neither order of ids fits: %s", strings.Join(all, "; "))
}

func (p *replay) lgi(m *machine) string {
	for _, row := range p.rows() {
		if why := p.fits(m, row); why != "" {
			return why
		}
	}
	return ""
}

// fits places an instance of lgi at its start or, if the record does not show the start, at one where it has its id.
func (p *replay) fits(m *machine, row []any) (why string) {
	d, name := m.device(0), row[0].(string)
	info := m.profile(d, name)
	places, ret := d.GetGpuInstancePossiblePlacements(&info)
	m.want(ret, nvml.SUCCESS, "GetGpuInstancePossiblePlacements")
	why = fmt.Sprintf("%v: the profile has no such start", row)
	for _, at := range places {
		if start, ok := row[2].(float64); ok && uint32(start) != at.Start {
			continue
		}
		gi, ret := m.place(d, name, int(at.Start))
		if ret != nvml.SUCCESS {
			why = fmt.Sprintf("%s at %d: %v", name, at.Start, ret)
			continue
		}
		got, _ := gi.GetInfo()
		id, known := row[1].(float64)
		size, sized := row[3].(float64)
		if (!known || got.Id == uint32(id)) && (!sized || got.Placement.Size == uint32(size)) {
			return ""
		}
		why = fmt.Sprintf("%s at %d has the id %d and the size %d, want %v",
			name, at.Start, got.Id, got.Placement.Size, row)
		m.want(gi.Destroy(), nvml.SUCCESS, "destroy")
	}
	return why
}

func (p *replay) order(m *machine) string {
	rows := p.rows()
	var got []uint32
	fits := true
	for _, row := range rows {
		info := m.profile(m.device(0), row[0].(string))
		gi, ret := m.device(0).CreateGpuInstance(&info)
		if ret != nvml.SUCCESS {
			return fmt.Sprintf("%v: %v", row, ret)
		}
		at, _ := gi.GetInfo()
		got = append(got, at.Id)
		id, known := row[1].(float64)
		fits = fits && (!known || at.Id == uint32(id))
	}
	if fits {
		return ""
	}
	return fmt.Sprintf("ids %v, want %v", got, rows)
}

func (p *replay) ci() {
	for _, row := range p.rows() {
		name := row[0].(string)
		if p.excused(name) {
			continue
		}
		p.Run(name, func(t *testing.T) {
			m := newMachine(t, "--board", p.model())
			gi, ret := m.place(m.device(0), name, 0)
			m.want(ret, nvml.SUCCESS, "create "+name)
			if number, ok := row[1].(float64); ok {
				info, ret := gi.GetComputeInstanceProfileInfo(int(number), nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
				m.want(ret, nvml.SUCCESS, "GetComputeInstanceProfileInfo")
				_, ret = gi.CreateComputeInstance(&info)
				m.want(ret, nvml.SUCCESS, "create the compute instance")
			} else {
				_, ret = m.fullCI(gi)
				m.want(ret, nvml.SUCCESS, "create the compute instance")
			}
			attributes, _ := m.migDevices(m.device(0))[0].GetAttributes()
			p.same("the number of SMs of the compute instance in "+name, attributes.MultiprocessorCount, row[2])
			p.compared++
		})
	}
}

func (p *replay) devmem() {
	for _, row := range p.rows() {
		name := row[0].(string)
		if name == "full" {
			memory, ret := newMachine(p.T, "--board", p.model(), "--mig", "off").device(0).GetMemoryInfo()
			p.same("the memory of the GPU in MiB", memory.Total>>20, row[1])
			p.same("the return code of GetMemoryInfo", ret, nvml.SUCCESS)
			continue
		}
		p.Run(name, func(t *testing.T) {
			m := newMachine(t, "--board", p.model())
			m.carve(m.device(0), name, 0)
			dev := m.migDevices(m.device(0))[0]
			memory, _ := dev.GetMemoryInfo()
			attributes, _ := dev.GetAttributes()
			p.near("the memory of "+name+" in MiB", float64(memory.Total>>20), row[1])
			p.same("the number of SMs of "+name, attributes.MultiprocessorCount, row[2])
		})
	}
}

func (p *replay) caps() {
	var minors map[string]int
	p.decode(&minors)
	proc := p.TempDir()
	newMachine(p.T, "--board", p.model(), "--proc-root", proc)
	table, err := os.ReadFile(proc + "/driver/nvidia-caps/mig-minors")
	if err != nil {
		p.Fatal(err)
	}
	lines := strings.Split(string(table), "\n")
	for name, minor := range minors {
		if p.excused(name) {
			continue
		}
		p.compared++
		if !slices.Contains(lines, fmt.Sprint(name, " ", minor)) {
			p.Errorf("mig-minors lacks %s %d", name, minor)
		}
	}
}

func (p *replay) capfile() {
	var files map[string]string
	p.decode(&files)
	proc := p.TempDir()
	newMachine(p.T, "--board", p.model(), "--proc-root", proc, "--fabric", "0")
	for name, want := range files {
		path := proc + "/driver/nvidia/capabilities/" + name
		if below, ok := strings.CutPrefix(name, "/proc"); ok {
			path, want = proc+below, "DeviceFileMinor 0"
		}
		access, err := os.ReadFile(path)
		if err != nil {
			p.Error(err)
		}
		for _, field := range strings.Split(want, ", ") {
			key, value, _ := strings.Cut(field, " ")
			p.compared++
			if !strings.Contains(string(access), "DeviceFile"+strings.TrimPrefix(key, "DeviceFile")+": "+value+"\n") {
				p.Errorf("%s lacks %s: %s", name, field, access)
			}
		}
	}
}

// excused reports whether a part of a record cannot be replayed. For other files of records, it only logs the part.
func (p *replay) excused(part string) bool {
	why, ok := unemulated[p.ID+" "+part]
	if ok {
		p.Logf("not replayed: %s: %s", part, why)
		p.left++
	}
	return ok
}

func (p *replay) facts() {
	var facts map[string]any
	p.decode(&facts)
	for what, want := range facts {
		if p.excused(what) {
			continue
		}
		act, ok := replays[what]
		if !ok {
			p.left++
			if p.builtIn {
				p.Errorf("no replay of %q, which is not in the table of exceptions", what)
			} else {
				p.Logf("not replayed: %s: no replay of this text", what)
			}
			continue
		}
		p.Run(what, func(t *testing.T) {
			p.compared++
			if got := act(t); !strings.HasPrefix(strings.ToLower(fmt.Sprint(want)), strings.ToLower(got)) {
				t.Errorf("%q, and the real GPU: %v", got, want)
			}
		})
	}
}
