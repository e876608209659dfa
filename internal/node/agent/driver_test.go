package agent

import (
	"fmt"
	"testing"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu/gputest"
)

// TestBootConfiguration checks that the instances that the driver restores after a reboot are foreign, and that their
// units are not offered.
func TestBootConfiguration(t *testing.T) {
	w := newWorldOn(t, gputest.New(t, "A100-40GB", 1, "--boot-config", "1"),
		fmt.Sprintf(closedA100, 7, 28), fullA100, tightest)
	id := w.startNow("4g.20gb")
	was := w.lease(id).Slices[0]
	w.fake.End(id)
	w.fake.RunEpilogs()
	if err := w.agent.ledger.SetMeta("boot_id", "of an earlier boot"); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.node.Emulator(t, "reboot")
	w.start()
	w.publish()
	if in := w.onlyInstance(); in.State != api.StateForeign || in.UUID == was.UUID || in.Profile != "4g.20gb" {
		t.Errorf("%+v after a reboot, before %+v", in, was)
	}
	if offers := w.offers(); offers["4g.20gb"] != 0 || offers["7g.40gb"] != 0 || offers["1g.5gb"] > 3 {
		t.Errorf("offers %v", offers)
	}
	if d := w.adopted(w.onlyInstance().UUID); d.Reason != "" {
		t.Errorf("not adopted: %+v", d)
	}
}

// TestStaleMIGDevices checks that an idle instance is not leased after another program has destroyed it, although the
// library still finds its MIG device.
func TestStaleMIGDevices(t *testing.T) {
	w := newWorldOn(t, gputest.New(t, "A100-40GB", 1, "--stale-mig-devices", "1"),
		fmt.Sprintf(closedA100, 7, 28), fullA100, tightest)
	id := w.startNow("3g.20gb")
	first := w.lease(id).Slices[0]
	in := w.instance(first.UUID)
	w.fake.End(id)
	w.fake.RunEpilogs()
	w.node.Emulator(t, "destroy", "0", fmt.Sprint(in.GI))
	if got := w.granted("3g.20gb"); got.UUID == first.UUID || got.Reused {
		t.Errorf("leased %+v, which another program has destroyed", got)
	}
}
