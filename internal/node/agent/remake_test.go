package agent

import (
	"database/sql"
	"fmt"
	"os"
	"syscall"
	"testing"

	"caelum/internal/node/api"
	"caelum/internal/node/gpu"
	"caelum/internal/node/gpu/gputest"
	"caelum/internal/node/ledger"
	"caelum/internal/node/state"
)

// again ends a job, and returns the slice of a job that another user starts then.
func (w *world) again(id, uid uint32, profile string) api.Slice {
	w.t.Helper()
	w.fake.End(id)
	w.fake.RunEpilogs()
	w.mu.Lock()
	w.uid = uid
	w.mu.Unlock()
	return w.granted(profile)
}

// TestRemakeBetweenUsers checks that the compute instance of a reused instance is new for another user, and the same
// for the same user.
func TestRemakeBetweenUsers(t *testing.T) {
	w := newWorld(t, 1, tightest)
	id := w.startNow("3g.20gb")
	first := w.lease(id).Slices[0]
	same := w.again(id, 20001, "3g.20gb")
	if same.UUID != first.UUID || !same.Reused {
		t.Errorf("%+v for the same user after %+v", same, first)
	}
	other := w.again(w.holder(same.UUID), 20002, "3g.20gb")
	if other.UUID == first.UUID || !other.Reused || other.Start != first.Start {
		t.Errorf("%+v for another user after %+v", other, first)
	}
	w.restart() // the agent does not know whether the compute instance is still in use
	third := w.again(w.holder(other.UUID), 20003, "3g.20gb")
	if third.UUID == other.UUID || third.Start != first.Start {
		t.Errorf("%+v for another user after a restart, before %+v", third, other)
	}
}

// holder returns the job that holds an instance.
func (w *world) holder(uuid string) uint32 {
	w.t.Helper()
	for id, l := range w.current().node.Leases {
		for _, s := range l.Slices {
			if s.UUID == uuid {
				return id
			}
		}
	}
	w.t.Fatalf("no job holds %s", uuid)
	return 0
}

func (w *world) restart() {
	w.stop()
	w.start()
	w.publish()
}

// TestRemakeInBackground checks that remakeIdle gives an idle instance a new compute instance, which the next user gets
// without another one, and that the ledger contains it.
func TestRemakeInBackground(t *testing.T) {
	w := newWorld(t, 1, tightest)
	id := w.startNow("2g.10gb")
	first := w.lease(id).Slices[0]
	w.fake.End(id)
	w.fake.RunEpilogs()
	select {
	case <-w.agent.remakes:
	default:
		t.Error("the release did not notify the reconciler")
	}
	w.agent.remakeIdle()
	idle := w.onlyInstance()
	if idle.UUID == first.UUID || idle.State != api.StateIdle {
		t.Fatalf("%+v after remakeIdle, before %+v", idle, first)
	}
	w.agent.remakeIdle()
	if now := w.onlyInstance(); now.UUID != idle.UUID {
		t.Errorf("an unused compute instance was re-created: %+v", now)
	}
	w.mu.Lock()
	w.uid = 20002
	w.mu.Unlock()
	if got := w.granted("2g.10gb"); got.UUID != idle.UUID || !got.Reused {
		t.Errorf("leased %+v, idle %+v", got, idle)
	}
	w.restart()
	if now := w.onlyInstance(); now.UUID != idle.UUID || now.State != api.StateLeased {
		t.Errorf("after a restart %+v", now)
	}
}

// onlyInstance returns the only instance of the node.
func (w *world) onlyInstance() api.Instance {
	w.t.Helper()
	s, _ := w.current().Status(w.t.Context())
	var all []api.Instance
	for _, g := range s.GPUs {
		all = append(all, g.Instances...)
	}
	if len(all) != 1 {
		w.t.Fatalf("instances %+v", all)
	}
	return all[0]
}

// TestRemakeRefused checks that an instance with a client that neither /proc nor the list of processes shows is set
// aside, and that the next job of another user gets a slice elsewhere.
func TestRemakeRefused(t *testing.T) {
	for _, background := range []bool{false, true} {
		t.Run(fmt.Sprint("background=", background), func(t *testing.T) {
			w := newWorld(t, 1, tightest)
			id := w.startNow("3g.20gb")
			first := w.lease(id).Slices[0]
			in := w.instance(first.UUID)
			w.node.Emulator(t, "hold", "0", fmt.Sprint(in.GI))
			if background {
				w.fake.End(id)
				w.fake.RunEpilogs()
				w.agent.remakeIdle()
				if s := w.states()[first.UUID]; s != "stuck" {
					t.Errorf("the instance is %s", s)
				}
				id = 0
			}
			var other api.Slice
			if id != 0 {
				other = w.again(id, 20002, "3g.20gb")
			} else {
				w.uid = 20002
				other = w.granted("3g.20gb")
			}
			if other.Start == first.Start || other.Reused {
				t.Errorf("leased %+v, although the driver refuses to destroy the compute instance of %+v", other, first)
			}
			w.node.Emulator(t, "unhold", "0", fmt.Sprint(in.GI))
			if err := w.agent.compareGPUs(); err != nil {
				t.Fatal(err)
			}
			if s := w.states()[first.UUID]; s != "" {
				t.Errorf("the instance is %s although nothing uses it", s)
			}
		})
	}
}

// TestShortComputeInstance checks that an instance whose compute instance is too small is reported, and that its
// compute instance is re-created when it is idle.
func TestShortComputeInstance(t *testing.T) {
	w := newWorldOf(t, "H100-80GB", 1, fmt.Sprintf(closedH100, 7, 28), allH100, tightest)
	id := w.startNow("1g.20gb")
	leased := w.lease(id).Slices[0].UUID
	if in := w.onlyInstance(); in.SMs != 26 || in.MaxSMs != 26 {
		t.Fatalf("%+v", in)
	}
	w.agent.node.Lock()
	for _, own := range w.agent.node.Cards[0].Ours {
		own.SMs = 16 // as created by an earlier version
	}
	w.agent.node.Unlock()
	if s := w.onlyInstance(); !s.Short() {
		t.Errorf("%+v", s)
	}
	w.fake.End(id)
	w.fake.RunEpilogs()
	w.agent.remakeIdle()
	if s := w.onlyInstance(); s.Short() || s.UUID == leased {
		t.Errorf("after remakeIdle %+v", s)
	}
}

// TestDeviceFileModes checks leases, a restart, a repair after an interrupted create, and an adoption with both values
// of NVreg_ModifyDeviceFiles. The second GPU numbers its instances in a different order than the first.
func TestDeviceFileModes(t *testing.T) {
	for _, value := range []string{"0", "1"} {
		t.Run("ModifyDeviceFiles="+value, func(t *testing.T) {
			node := gputest.New(t, "A100-40GB", 2, "--modify-device-files", value)
			w := newWorldOn(t, node, fmt.Sprintf(closedA100, 14, 56), fullA100, tightest)
			want := func(states string) { t.Helper(); w.inStates(states) }
			var jobs []uint32
			for range 4 {
				id := w.startNow("3g.20gb")
				s := w.lease(id).Slices[0]
				for _, in := range w.listed(s.GPU) {
					if in.UUID == s.UUID {
						w.ownedBy(w.agent.caps.Files(w.agent.node.Cards[s.GPU].Minor, in), 20001)
					}
				}
				jobs = append(jobs, id)
			}
			w.restart()
			want("map[leased:4]")
			for _, id := range jobs[:2] {
				s := w.lease(id).Slices[0]
				w.fake.End(id)
				w.fake.RunEpilogs()
				w.agent.remakeIdle()
				for _, in := range w.listed(s.GPU) {
					if in.Start == s.Start {
						w.ownedBy(w.agent.caps.Files(w.agent.node.Cards[s.GPU].Minor, in), 0)
					}
				}
			}
			want("map[idle:2 leased:2]")
			w.fake.End(jobs[2])
			w.fake.RunEpilogs()
			w.stop()
			if err := os.Remove(w.ledgerFile()); err != nil {
				t.Fatal(err)
			}
			w.start()
			want("map[foreign:3 leased:1]")
			if _, err := w.agent.Adopt(t.Context(), api.AdoptRequest{}); err != nil {
				t.Fatal(err)
			}
			want("map[idle:3 leased:1]")
			w.publish()
			if got := w.granted("3g.20gb"); !got.Reused {
				t.Errorf("leased %+v although three instances are idle", got)
			}
		})
	}
}

// inStates checks the number of instances in each state, such as "map[idle:2 leased:2]".
func (w *world) inStates(want string) {
	w.t.Helper()
	count := map[string]int{}
	status, _ := w.agent.Status(w.t.Context())
	for _, g := range status.GPUs {
		for _, in := range g.Instances {
			count[in.State]++
		}
	}
	if got := fmt.Sprint(count); got != want {
		w.t.Errorf("instances %s, want %s", got, want)
	}
}

// listed returns the instances of a GPU according to the driver.
func (w *world) listed(g int) []gpu.Instance {
	w.t.Helper()
	all, err := w.node.Instances(g)
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// ownedBy checks that only a user can open files.
func (w *world) ownedBy(files []string, uid uint32) {
	w.t.Helper()
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			w.t.Error(err)
		} else if own := info.Sys().(*syscall.Stat_t).Uid; own != uid || info.Mode().Perm() != 0o400 {
			w.t.Errorf("%s has the owner %d and the mode %v, want %d", path, own, info.Mode(), uid)
		}
	}
}

// TestInterruptedCreate checks that an agent that was interrupted between the creation of a GPU instance and that of
// its compute instance destroys the GPU instance, although its capability file does not exist.
func TestInterruptedCreate(t *testing.T) {
	for _, value := range []string{"0", "1"} {
		w := newWorldOn(t, gputest.New(t, "A100-40GB", 1, "--modify-device-files", value),
			fmt.Sprintf(closedA100, 7, 28), fullA100, tightest)
		intent := ledger.Intent{
			Op: ledger.OpCreate, GPU: w.agent.node.Cards[0].UUID, Profile: "2g.10gb", Start: 2, Size: 2, Job: 1,
		}
		if _, err := w.agent.ledger.Begin(intent); err != nil {
			t.Fatal(err)
		}
		w.node.Emulator(t, "create", "0", "2g.10gb", "2", "--no-ci")
		w.restart()
		if all := w.listed(0); len(all) != 0 {
			t.Errorf("%+v remain", all)
		}
		if intents, err := w.agent.ledger.Intents(); err != nil || len(intents) != 0 {
			t.Errorf("intents %v, %v", intents, err)
		}
		w.prologs.Wait()
	}
}

// TestUnknownProfile checks that the units of an instance whose profile the library does not know are not offered.
func TestUnknownProfile(t *testing.T) {
	w := newWorld(t, 1, tightest)
	w.node.Emulator(t, "create", "0", "4g.20gb", "0")
	w.agent.hw = nameless{w.agent.hw}
	if err := w.agent.compareGPUs(); err != nil {
		t.Fatal(err)
	}
	w.publish()
	if offers := w.offers(); offers["7g.40gb"] != 0 || offers["4g.20gb"] != 0 || offers["1g.5gb"] > 3 {
		t.Errorf("offers %v", offers)
	}
	if in := w.onlyInstance(); in.State != api.StateForeign || in.Profile != "profile-99" {
		t.Errorf("%+v", in)
	}
}

// nameless is a driver that reports profiles that the library does not know.
type nameless struct{ gpu.Hardware }

func (n nameless) Instances(g int) ([]gpu.Instance, error) {
	all, err := n.Hardware.Instances(g)
	for i := range all {
		all[i].Profile = "profile-99"
	}
	return all, err
}

// TestGrantNotRecorded checks that a slice is not reused unchanged after a user could open its capability files while
// the ledger had no lease for him.
func TestGrantNotRecorded(t *testing.T) {
	for name, fail := range map[string]func(*world, api.Lease, []*state.Instance){
		"crash": func(w *world, lease api.Lease, held []*state.Instance) {
			if err := w.agent.open(lease, held); err != nil {
				w.t.Error(err)
			}
			w.restart()
		},
		"ledger": func(w *world, lease api.Lease, held []*state.Instance) {
			w.sql("CREATE TRIGGER full BEFORE INSERT ON lease BEGIN SELECT RAISE(FAIL, 'full'); END")
			if _, err := w.agent.grant(lease, held); err == nil {
				w.t.Error("granted although the ledger contains no lease")
			}
			w.sql("DROP TRIGGER full")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, tightest)
			id := w.startNow("3g.20gb")
			first := w.lease(id).Slices[0]
			w.fake.End(id)
			w.fake.RunEpilogs()
			var held []*state.Instance
			for _, in := range w.agent.node.Cards[0].Ours {
				held = append(held, in)
			}
			files := w.agent.caps.Files(w.agent.node.Cards[0].Minor, w.instance(first.UUID))
			fail(w, api.Lease{Job: 99, UID: 20002, Slices: []api.Slice{first}}, held)
			w.ownedBy(files, 0)
			if now := w.granted("3g.20gb"); now.UUID == first.UUID || now.Start != first.Start {
				t.Errorf("leased %+v to the user of %+v, which another user could open since then", now, first)
			}
		})
	}
}

// sql changes the ledger behind the agent's back.
func (w *world) sql(text string) {
	w.t.Helper()
	db, err := sql.Open("sqlite3", w.ledgerFile())
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(text); err != nil {
		w.t.Fatal(err)
	}
}
