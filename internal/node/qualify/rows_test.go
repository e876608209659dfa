package qualify

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// script writes a program and returns its path.
func script(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// modprobe returns a program that opens a file for all users as nvidia-modprobe does. It asks the driver before, unless
// its argument begins with rude.
func (n node) modprobe(t testing.TB, rude string) string {
	return script(t, fmt.Sprintf(`
case $1 in
-f=*) file=%[1]s/nvidia-caps/nvidia-cap$(sed -n 's/DeviceFileMinor: //p' "${1#-f=}")
	grep -q 'DeviceFileModify: 1' "${1#-f=}" || [ '%[3]s' = -f ] || exit 0 ;;
-c) file=%[1]s/nvidia$2
	grep -q 'ModifyDeviceFiles: 1' %[2]s/driver/nvidia/params || [ '%[3]s' = -c ] || exit 0 ;;
esac
chmod 666 $file
`, n.Dev, n.Proc, rude))
}

// subscriber returns a program that uses a slice without a descriptor and without an entry in the process list.
func (n node) subscriber(t testing.TB) string {
	return script(t, fmt.Sprintf(`
gi=$(%[1]s show | awk -v uuid=$CUDA_VISIBLE_DEVICES '$1 == "GI" {gi = $2} $1 == "CI" && $3 == uuid {print gi}')
trap '%[1]s unhold 0 '$gi'; kill $sleep; exit' TERM
%[1]s hold 0 $gi
sleep 30 & sleep=$!
wait
`, filepath.Join(n.Build(), "nvml-emulator")))
}

func (n node) cuda() []string {
	return []string{filepath.Join(n.Build(), "cuda-process"), "--seconds", "60"}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	old, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(old, text...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// violation is a way in which the emulated driver can violate an assumption.
type violation struct {
	row, model string
	options    string
	fault      func(*testing.T, node, *Options)
}

func emulator(args string) func(*testing.T, node, *Options) {
	return func(t *testing.T, n node, _ *Options) { n.Emulator(t, strings.Fields(args)...) }
}

const always = " --times 1000000"

// violations has at least one case for each assumption that the emulator can violate, and cases that violate none.
var violations = []violation{
	{row: "", model: "A30-24GB"},
	{row: "", model: "A30-24GB", options: "--modify-device-files 0"},
	{row: "A18", options: "--persistence 1"},
	{row: "", options: "--virtualization passthrough"},
	{row: "", options: "--stale-mig-devices 1 --boot-config 1"},
	{row: "", model: "H100-80GB", options: "--fabric 300"},
	{row: "A1", fault: emulator("fault add --call CREATE_CI --error NO_PERMISSION" + always)},
	{row: "A2", fault: emulator("quirk few-sms")},
	{row: "A3", fault: emulator("quirk moving-ids")},
	{row: "A4", fault: func(t *testing.T, n node, _ *Options) {
		path := filepath.Join(n.Proc, "driver/nvidia-caps/mig-minors")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(data), "gpu0/gi3/access 30", "gpu0/gi3/access 31", 1)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}},
	{row: "A5", fault: func(t *testing.T, n node, o *Options) { o.Modprobe = n.modprobe(t, "-f") }},
	{row: "A6", model: "H100-80GB", options: "--fabric 0 --modify-device-files 0",
		fault: func(t *testing.T, n node, o *Options) { n.nvswitch(t); o.ModeSwitch = false }},
	{row: "A7", fault: emulator("fault add --call PROCESSES --error NO_PERMISSION" + always)},
	{row: "A8", fault: emulator("fault add --call CREATE_GI --nth 2 --error UNKNOWN")},
	{row: "A9", fault: emulator("fault add --call CREATE_GI --nth 3 --error UNKNOWN")},
	{row: "A10", fault: emulator("quirk destroy-busy")},
	{row: "A10", fault: emulator("fault add --call DESTROY_GI --error UNKNOWN")},
	{row: "A12", fault: func(t *testing.T, n node, o *Options) { o.CUDA = []string{n.subscriber(t)} }},
	{row: "A13", fault: emulator("quirk no-process-ids")},
	{row: "A14", fault: emulator("quirk open-monitor")},
	{row: "A15", fault: emulator("quirk stale-list")},
	{row: "A16", fault: func(t *testing.T, n node, _ *Options) {
		appendTo(t, filepath.Join(n.Proc, "driver/nvidia/params"), "RegistryDwords: \"RMDisableScrubOnFree=1\"\n")
	}},
	{row: "A17", fault: emulator("uuid repeat")},
	{row: "A18", model: "H100-80GB", fault: emulator("fault add --call SET_MIG_MODE --nth 3 --activation IN_USE")},
	{row: "A18", fault: emulator("fault add --call SET_MIG_MODE --nth 3 --activation IN_USE")},
	{row: "A18", options: "--drm 1"},
	{row: "A19", model: "H100-80GB", options: "--fabric 600000",
		fault: func(_ *testing.T, _ node, o *Options) { o.FabricLimit = time.Second }},
	{row: "A21", fault: emulator("quirk forgetful")},
	{row: "A22", fault: emulator("latency --call LIST_GI 550")},
	{row: "A23", fault: emulator("drift --profile 1g.6gb --memory 7000")},
	{row: "A23", model: "H100-80GB-NEWER"},
	{row: "A24", fault: emulator("quirk counts")},
	{row: "A26", options: "--modify-device-files 0",
		fault: func(t *testing.T, n node, o *Options) { o.Modprobe = n.modprobe(t, "-c") }},
	{row: "A27", model: "H100-80GB", fault: emulator("quirk mode-while-held")},
	{row: "A29", fault: emulator("quirk ci-ids")},
	{row: "A31", options: "--nvlink all", fault: emulator("quirk p2p")},
}

// nvswitch makes the driver list an NVSwitch.
func (n node) nvswitch(t *testing.T) {
	t.Helper()
	dir := filepath.Join(n.Proc, "driver/nvidia-nvswitch/devices")
	err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "0000:05:00.0"), nil, 0o444))
	if err != nil {
		t.Fatal(err)
	}
}

// TestUnusedCapability checks that a node without NVSwitches may lack the file of Fabric Manager.
func TestUnusedCapability(t *testing.T) {
	n := newNode(t, "H100-80GB", 1, "--fabric", "0", "--modify-device-files", "0")
	rows := n.run(t, func(o *Options) { o.ReadOnly = true }).Rows
	k := slices.IndexFunc(rows, func(row Row) bool { return row.ID == "A6" })
	if k < 0 || rows[k].Result != Holds {
		t.Errorf("%+v", rows)
	}
}

// TestRows checks that exactly the row of the violated assumption differs.
func TestRows(t *testing.T) {
	for _, c := range violations {
		if c.model == "" {
			c.model = "A30-24GB"
		}
		t.Run(c.row+strings.TrimPrefix(c.options, "--"), func(t *testing.T) {
			gpus := 1
			if c.row == "A31" {
				gpus = 2
			}
			n := newNode(t, c.model, gpus, strings.Fields(c.options)...)
			rep := n.run(t, func(o *Options) {
				o.ModeSwitch, o.CUDA, o.Modprobe = true, n.cuda(), n.modprobe(t, "")
				if c.fault != nil {
					c.fault(t, n, o)
				}
			})
			for _, row := range rep.Rows {
				if (row.Result == Differs) != (row.ID == c.row) {
					t.Errorf("%s %s: %q", row.ID, row.Result, row.Details)
				}
			}
		})
	}
}
