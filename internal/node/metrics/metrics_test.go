package metrics

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"caelum/internal/core/mig"
	"caelum/internal/core/predict"
	"caelum/internal/node/api"
)

// node returns the state of a node with the given GPUs.
func node(profiles []string, gpus ...api.GPU) State {
	return State{
		Status: api.Status{Profiles: profiles, GPUs: gpus, PublishedAt: 1000, SummariesWaiting: 3},
		Now:    time.Unix(1010, 0), Waiting: 2, Updates: 7,
	}
}

func instance(profile string, start, size int, state string) api.Instance {
	return api.Instance{Placement: api.Placement{Profile: profile, Start: start, Size: size}, State: state}
}

// busyGPU has a slice in each state. A starting job takes the place of an idle slice.
var busyGPU = api.GPU{
	Grid: 8,
	Instances: []api.Instance{
		instance("2g.10gb", 0, 2, api.StateLeased),
		instance("1g.5gb", 2, 1, api.StateIdle),
		instance("1g.5gb", 2, 1, api.StatePromised),
		instance("1g.5gb", 3, 1, api.StateStuck),
		instance("1g.5gb+me", 4, 1, api.StateForeign),
		instance("1g.5gb", 5, 1, api.StateIdle),
	},
	Offers: []api.Placement{{Profile: "2g.10gb", Start: 6, Size: 2}},
}

func page(t *testing.T, m *Metrics) string {
	t.Helper()
	text, err := m.text()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// series returns the lines of a page that show values.
func series(page string) (lines []string) {
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestPage(t *testing.T) {
	lost := api.GPU{Index: 1, Grid: 8, Problem: "lost"}
	s := node([]string{"1g.5gb", "2g.10gb", "7g.40gb"}, busyGPU, lost)
	short := busyGPU
	short.Instances = slices.Clone(busyGPU.Instances)
	short.Instances[0].SMs, short.Instances[0].MaxSMs = 16, 26
	s.GPUs[0] = short
	m := New(func() State { return s })
	m.Leased(300 * time.Millisecond)
	m.Carved(2 * time.Second)
	m.Failed(Carve)
	m.Failed(Carve)
	m.Grew(predict.Foreseen)
	m.Foresaw()
	m.Ended()
	got := series(page(t, m))
	for _, want := range []string{
		`caelum_slices{profile="2g.10gb",state="leased"} 1`,
		`caelum_slices{profile="1g.5gb",state="starting"} 1`,
		`caelum_slices{profile="1g.5gb",state="idle"} 2`,
		`caelum_slices{profile="1g.5gb",state="stuck"} 1`,
		`caelum_slices{profile="1g.5gb+me",state="foreign"} 1`,
		`caelum_slices{profile="7g.40gb",state="leased"} 0`,
		`caelum_short_slices 1`,
		`caelum_placement_units{gpu="0",state="busy"} 4`,
		`caelum_placement_units{gpu="0",state="idle"} 1`,
		`caelum_placement_units{gpu="0",state="stuck"} 1`,
		`caelum_placement_units{gpu="0",state="free"} 2`,
		`caelum_offers{profile="2g.10gb"} 1`,
		`caelum_offers{profile="1g.5gb"} 0`,
		`caelum_gpus{state="managed"} 1`,
		`caelum_gpus{state="unmanaged"} 1`,
		`caelum_waiting_jobs 2`,
		`caelum_publish_timestamp_seconds 1000`,
		`caelum_read_timestamp_seconds 1010`,
		`caelum_node_updates_total 7`,
		`caelum_summaries_waiting 3`,
		`caelum_repository_working 1`,
		`caelum_notifications_working 1`,
		`caelum_lease_duration_seconds_bucket{le="0.25"} 0`,
		`caelum_lease_duration_seconds_bucket{le="0.5"} 1`,
		`caelum_lease_duration_seconds_sum 0.3`,
		`caelum_carve_duration_seconds_count 1`,
		`caelum_failures_total{kind="carve"} 2`,
		`caelum_failures_total{kind="publish"} 0`,
		`caelum_growths_total{cause="forecast"} 1`,
		`caelum_growths_total{cause="oom"} 0`,
		`caelum_exceeding_forecasts_total 1`,
		`caelum_runs_total 1`,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("the page does not contain %s", want)
		}
	}
	for _, line := range got {
		if strings.Contains(line, `gpu="1"`) {
			t.Errorf("the page shows units of a GPU that is not managed: %s", line)
		}
	}
}

func TestHiddenState(t *testing.T) {
	s := node([]string{"1g.5gb"}, busyGPU)
	s.Waiting, s.RepositoryFailed, s.Deaf = -1, true, "port in use"
	text := page(t, New(func() State { return s }))
	if strings.Contains(text, "caelum_waiting_jobs") {
		t.Error("the page contains a number of waiting jobs that is hidden")
	}
	if !strings.Contains(text, "\ncaelum_notifications_working 0\n") {
		t.Error("the page does not show that the agent receives no notifications")
	}
	if !strings.Contains(text, "\ncaelum_repository_working 0\n") {
		t.Error("the page does not show that the repository failed")
	}
}

// TestNamesAndHelp applies the rules of `promtool check metrics`.
func TestNamesAndHelp(t *testing.T) {
	m := New(func() State { return node([]string{"1g.5gb"}, busyGPU) })
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, line := range series(page(t, m)) {
		if !strings.HasPrefix(line, "caelum_") {
			t.Errorf("%s does not begin with caelum_", line)
		}
	}
}

// TestDocumentation compares the names and types in docs/operate.md with those of the metrics.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n| metric | type | meaning |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(table, -1) {
		documented[row[1]] = row[2]
	}
	m := New(func() State { return node([]string{"1g.5gb"}, busyGPU) })
	m.Xid(0, 31) // there is no series before the first error
	families, err := m.registry.Gather()
	if err != nil || !found {
		t.Fatalf("the page has a table: %v; Gather returned %v", found, err)
	}
	metrics := map[string]string{}
	for _, f := range families {
		metrics[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	if !maps.Equal(documented, metrics) {
		t.Errorf("docs/operate.md describes\n%v\nbut the metrics are\n%v", documented, metrics)
	}
}

// maxSeries limits the series of a node with eight GPUs.
const maxSeries = 300

// TestSeries counts the series of a node with eight H100s that offers every profile of the GPU model, including the
// variants, and on which each profile is in use.
func TestSeries(t *testing.T) {
	h100, err := mig.ModelByName("H100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	var profiles []string
	for _, p := range h100.Profiles {
		profiles = append(profiles, p.Name)
	}
	profiles = append(profiles, mig.Full)
	var gpus []api.GPU
	for g := range 8 {
		used := api.GPU{Index: g, Grid: h100.Grid}
		for k, p := range profiles {
			state := []string{api.StateLeased, api.StateIdle, api.StateStuck, api.StateForeign}[(g+k)%4]
			used.Instances = append(used.Instances, instance(p, k%h100.Grid, 1, state))
			used.Offers = append(used.Offers, api.Placement{Profile: p})
		}
		gpus = append(gpus, used)
	}
	lines := series(page(t, New(func() State { return node(profiles, gpus...) })))
	t.Logf("%d profiles, %d series", len(profiles), len(lines))
	for _, p := range profiles {
		if want := fmt.Sprintf(`caelum_offers{profile="%s"} 8`, p); !slices.Contains(lines, want) {
			t.Errorf("the page does not contain %s", want)
		}
	}
	if len(lines) > maxSeries {
		t.Errorf("the page has %d series, more than %d", len(lines), maxSeries)
	}
}

// TestOtherUsersJobs checks that the page shows no data about jobs, and no labels other than the documented ones.
func TestOtherUsersJobs(t *testing.T) {
	g := busyGPU
	g.UUID = "GPU-secret1"
	g.Instances = slices.Clone(g.Instances)
	g.Instances[0].Job, g.Instances[0].UUID, g.Instances[0].Note = 4711, "MIG-secret2", "secret3"
	s := node([]string{"1g.5gb"}, g)
	s.Leases = []api.Lease{{
		Job: 4711, UID: 20815, Name: "secret4", User: "secret5", Account: "secret6", Key: "secret7",
		Fingerprint: "secret8",
		Slices:      []api.Slice{{UUID: "MIG-secret2", Profile: "2g.10gb"}},
	}}
	s.PublishError, s.Closed = "secret9", "secret10"
	text := page(t, New(func() State { return s }))
	for _, secret := range []string{"secret", "4711", "20815"} {
		if strings.Contains(text, secret) {
			t.Errorf("the page contains %s", secret)
		}
	}
	labels := []string{"profile", "state", "gpu", "kind", "cause", "le", "version", "commit", "goversion"}
	for _, match := range regexp.MustCompile(`[{,]([a-z_]+)="`).FindAllStringSubmatch(text, -1) {
		if !slices.Contains(labels, match[1]) {
			t.Errorf("the page contains the label %s", match[1])
		}
	}
}
