package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"caelum/internal/node/api/apitest"
)

// sharedNode returns the status of a node on which alice (1001) has job 1, and bob (1002) has job 2. Job 3 is starting.
func sharedNode() Status {
	lease := func(job, uid uint32, user string) Lease {
		return Lease{
			Job: job, UID: uid, Name: "name-of-" + user, User: user, Account: "account-of-" + user,
			Key: "key-of-" + user, Fingerprint: "fingerprint-of-" + user, Error: "error-of-" + user, Slots: []int{0},
			Slices: []Slice{{Profile: "1g.5gb", UUID: "MIG-" + user, Use: &Use{MemoryMiB: 4321}}},
		}
	}
	in := func(job uint32, state string) Instance {
		return Instance{Placement: Placement{Profile: "1g.5gb"}, State: state, Job: job, Note: "process-of-bob"}
	}
	return Status{
		Node: "n1", Leases: []Lease{lease(1, 1001, "alice"), lease(2, 1002, "bob")},
		Reserved: &Reservation{Job: 4}, PublishError: "job 2 of bob",
		GPUs: []GPU{{Instances: []Instance{in(1, "leased"), in(2, "leased"), in(3, "promised"), in(0, "idle")}}},
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestShownTo checks which data of bob's job alice can see at each level. She must always see all data about her own
// job.
func TestShownTo(t *testing.T) {
	whole := text(t, sharedNode())
	for _, c := range []struct {
		visible Visibility
		sees    []string
		hidden  []string
	}{
		{SeesAll, []string{"of-bob", "4321", `"job":4`}, nil},
		{SeesJobs, []string{"name-of-bob", "account-of-bob", "MIG-bob", `"job":3`, `"job":4`},
			[]string{"key-of-bob", "fingerprint-of-bob", "error-of-bob", "job 2 of bob", "process-of-bob"}},
		{SeesOwn, []string{`"state":"leased"`, `"state":"promised"`, `"state":"idle"`},
			[]string{"bob", `"job":2`, `"job":3`, `"job":4`}},
	} {
		s := sharedNode()
		got := text(t, s.shownTo(1001, c.visible))
		own := []string{"name-of-alice", "key-of-alice", "fingerprint-of-alice", "error-of-alice", `"job":1`}
		for _, want := range append(c.sees, own...) {
			if !strings.Contains(got, want) {
				t.Errorf("visibility %d does not show %s: %s", c.visible, want, got)
			}
		}
		for _, secret := range c.hidden {
			if strings.Contains(got, secret) {
				t.Errorf("visibility %d shows %s: %s", c.visible, secret, got)
			}
		}
		want := map[Visibility]int{SeesAll: 2, SeesJobs: 1, SeesOwn: 1}[c.visible]
		if strings.Count(got, "4321") != want {
			t.Errorf("visibility %d does not show the usage of %d jobs: %s", c.visible, want, got)
		}
		if text(t, s) != whole {
			t.Error("the agent's own status was changed")
		}
	}
	// A peer whose uid the kernel did not report does not own any job.
	s := sharedNode()
	s.Leases[0].UID = nobody
	if got := text(t, s.shownTo(nobody, SeesOwn)); strings.Contains(got, "alice") {
		t.Error(got)
	}
}

// shared is a handler that serves sharedNode and does not implement Private.
type shared struct{ fake }

func (*shared) Status(context.Context) (*Status, error) { s := sharedNode(); return &s, nil }

func (*shared) Job(_ context.Context, job uint32) (*Lease, error) {
	for _, l := range sharedNode().Leases {
		if l.Job == job {
			return &l, nil
		}
	}
	return nil, NoLease(job)
}

// TestPeers checks two properties over the socket: the answer for a hidden job must be the same as for a job without a
// lease, and the limit on one user's calls must not affect root or other users.
func TestPeers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to call as other users")
	}
	dir, err := os.MkdirTemp("", "caelum-api")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o755)
	l, err := Listen(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(&shared{})
	go server.Serve(l)
	defer server.Close()
	get := func(uid uint32, path string) string {
		t.Helper()
		request := "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
		answer, err := apitest.Send(filepath.Join(dir, SocketName), uid, []byte(request))
		if err != nil {
			t.Fatal(err)
		}
		return string(answer)
	}
	if got := get(1001, "/v1/status"); strings.Contains(got, "bob") || !strings.Contains(got, "alice") {
		t.Error(got)
	}
	hidden, none := get(1001, "/v1/jobs/2"), get(1001, "/v1/jobs/9")
	if !strings.Contains(hidden, "404") || strings.ReplaceAll(body(hidden), "2", "9") != body(none) {
		t.Errorf("a hidden job: %s\nnone: %s", hidden, none)
	}
	if got := get(1001, "/v1/jobs/1"); !strings.Contains(got, "alice") {
		t.Error(got)
	}
	refused := ""
	for end := time.Now().Add(20 * time.Second); refused == "" && time.Now().Before(end); {
		if got := get(1001, "/v1/status"); strings.Contains(got, fmt.Sprint(http.StatusTooManyRequests)) {
			refused = got
		}
	}
	if !strings.Contains(refused, tooManyText) {
		t.Error("the server did not reject any call from a user who calls too often")
	}
	for range 3 * callBurst {
		if got := get(0, "/v1/jobs/2"); !strings.Contains(got, "bob") {
			t.Fatal(got)
		}
	}
	if got := get(1002, "/v1/status"); !strings.Contains(got, "bob") {
		t.Errorf("the server also rejects another user's call: %s", got)
	}
}

func body(answer string) string {
	_, body, _ := strings.Cut(answer, "\r\n\r\n")
	return body
}

// TestCountedAs checks that a process in a user's namespace counts as that user, and that root is never counted.
func TestCountedAs(t *testing.T) {
	l := listener{owner: func(pid int, uid uint32) uint32 { return map[int]uint32{7: 1001, 8: uid}[pid] }}
	for _, c := range []struct {
		of   peer
		want uint32
	}{
		{peer{uid: 100_005, pid: 7}, 1001}, {peer{uid: 1002, pid: 8}, 1002}, {peer{uid: 0, pid: 7}, 0},
		{peer{uid: 1003}, 1003},
	} {
		if got := l.countedAs(c.of); got != c.want {
			t.Errorf("%+v counts as %d, want %d", c.of, got, c.want)
		}
	}
}

// TestLimiter checks that a user may make callBurst calls, and then one call per callEvery. Users beyond maxCounted
// must share one limit.
func TestLimiter(t *testing.T) {
	l := limiter{due: map[uint32]time.Time{}}
	now := time.Unix(1e9, 0)
	admitted := func(uid uint32, calls int) (n int) {
		for range calls {
			if l.admit(uid, now) {
				n++
			}
		}
		return n
	}
	want := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d calls admitted, want %d", what, got, want)
		}
	}
	want("root", admitted(0, 1000), 1000)
	want("a burst", admitted(1, 1000), callBurst)
	now = now.Add(3 * callEvery)
	want("after three intervals", admitted(1, 1000), 3)
	want("another user", admitted(2, 1000), callBurst)
	now = now.Add(time.Hour)
	want("after a pause", admitted(1, 1000), callBurst)
	for uid := range uint32(maxCounted - 1) { // user 1 already has an entry
		admitted(10+uid, 1)
	}
	want("further users together", admitted(20000, 30)+admitted(20001, 30), callBurst)
	want("a user with an entry", admitted(10, 1000), callBurst-1)
	if len(l.due) > maxCounted+1 {
		t.Errorf("%d users have an entry", len(l.due))
	}
	now = now.Add(time.Hour)
	want("a new user after an hour", admitted(30000, 1000), callBurst)
	now = now.Add(time.Hour)
	all := 0
	for uid := range uint32(maxCounted) {
		all += admitted(40000+uid, callBurst)
	}
	want("all users together", all, allBurst)
	want("root, after all users", admitted(0, 1000), 1000)
}
