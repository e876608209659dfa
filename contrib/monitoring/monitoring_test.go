package monitoring

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/viper"

	"caelum/internal/node/api"
	"caelum/internal/node/metrics"
)

// vocabulary holds the names that an expression may use.
type vocabulary struct {
	metrics []string
	labels  []string
	values  map[string][]string // the values of each label that has a fixed set of values
}

// fixed lists the labels whose values do not depend on the node.
var fixed = []string{"state", "kind", "cause"}

// agentVocabulary returns the names in the metrics of a node with one GPU, and the labels that Prometheus adds.
func agentVocabulary(t *testing.T) vocabulary {
	t.Helper()
	m := metrics.New(func() metrics.State {
		gpu := api.GPU{Grid: 8, Offers: []api.Placement{{Profile: "1g.5gb"}}}
		return metrics.State{Status: api.Status{Profiles: []string{"1g.5gb"}, GPUs: []api.GPU{gpu}}, Now: time.Now()}
	})
	path := filepath.Join(t.TempDir(), "caelum.prom")
	if err := m.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	v := vocabulary{labels: []string{"instance", "le"}, values: map[string][]string{}}
	for name, f := range families {
		v.metrics = append(v.metrics, name)
		if f.GetType().String() == "HISTOGRAM" {
			v.metrics = append(v.metrics, name+"_bucket", name+"_sum", name+"_count")
		}
		for _, one := range f.Metric {
			for _, l := range one.Label {
				v.labels = append(v.labels, l.GetName())
				if slices.Contains(fixed, l.GetName()) {
					v.values[l.GetName()] = append(v.values[l.GetName()], l.GetValue())
				}
			}
		}
	}
	return v
}

// words lists the functions and operators of PromQL that the expressions use.
var words = []string{"sum", "max", "count", "by", "rate", "increase", "histogram_quantile", "time"}

var (
	selector  = regexp.MustCompile(`\{([^}]*)\}`)
	matcher   = regexp.MustCompile(`([a-z_]+)(=~|!=|!~|=)"([^"]*)"`)
	grouping  = regexp.MustCompile(`\bby \(([^)]*)\)`)
	ranges    = regexp.MustCompile(`\[[^\]]*\]`)
	separator = regexp.MustCompile(`[^a-zA-Z_:]+`)
)

// unknown returns the parts of an expression that are not in the vocabulary.
func (v vocabulary) unknown(expression string) (names []string) {
	for _, s := range selector.FindAllStringSubmatch(expression, -1) {
		if rest := strings.Trim(matcher.ReplaceAllString(s[1], ""), ", "); rest != "" {
			names = append(names, "the selector "+s[1])
		}
		for _, m := range matcher.FindAllStringSubmatch(s[1], -1) {
			if !slices.Contains(v.labels, m[1]) {
				names = append(names, "the label "+m[1])
			}
			for value := range strings.SplitSeq(m[3], "|") {
				if slices.Contains(fixed, m[1]) && !slices.Contains(v.values[m[1]], value) {
					names = append(names, "the value "+m[1]+"="+value)
				}
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(expression, -1) {
		for label := range strings.SplitSeq(g[1], ", ") {
			if !slices.Contains(v.labels, label) {
				names = append(names, "the label "+label)
			}
		}
	}
	rest := ranges.ReplaceAllString(grouping.ReplaceAllString(selector.ReplaceAllString(expression, ""), "by"), "")
	for _, word := range separator.Split(rest, -1) {
		if word != "" && !slices.Contains(words, word) && !slices.Contains(v.metrics, word) {
			names = append(names, "the name "+word)
		}
	}
	return names
}

func (v vocabulary) check(t *testing.T, where, expression string) {
	t.Helper()
	if !strings.Contains(expression, "caelum_") {
		t.Errorf("%s: the expression %q uses no metric of Caelum", where, expression)
	}
	for _, name := range v.unknown(expression) {
		t.Errorf("%s: the expression uses %s, which no agent writes:\n%s", where, name, expression)
	}
}

// TestUnknown checks that unknown finds names that no agent writes.
func TestUnknown(t *testing.T) {
	v := agentVocabulary(t)
	for expression, want := range map[string]string{
		`caelum_offers > 0`:                           "",
		`sum(caelum_offer)`:                           "the name caelum_offer",
		`caelum_offers{job_id="7"}`:                   "the label job_id",
		`sum by (user) (caelum_offers)`:               "the label user",
		`caelum_slices{state=~"leased|broken"}`:       "the value state=broken",
		`rate(caelum_lease_duration_seconds_max[5m])`: "the name caelum_lease_duration_seconds_max",
		`caelum_offers{profile=1}`:                    "the selector profile=1",
	} {
		if got := strings.Join(v.unknown(expression), ", "); got != want {
			t.Errorf("unknown(%s) = %q, want %q", expression, got, want)
		}
	}
}

// rule is one of Prometheus's rules, which has either an alert or a record.
type rule struct {
	Alert, Record, Expr string
	Labels, Annotations map[string]string
}

// checkedRules returns the rules in a file after it has checked their expressions.
func checkedRules(t *testing.T, path string) (all []rule) {
	t.Helper()
	rules := viper.New()
	rules.SetConfigFile(path)
	if err := rules.ReadInConfig(); err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []rule } }
	if err := rules.Unmarshal(&file); err != nil {
		t.Fatal(err)
	}
	v := agentVocabulary(t)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			v.check(t, r.Alert+r.Record, r.Expr)
		}
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Errorf("%s contains no rules", path)
	}
	return all
}

func TestAlerts(t *testing.T) {
	for _, r := range checkedRules(t, "alerts.yaml") {
		if r.Alert == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" ||
			r.Annotations["description"] == "" {
			t.Errorf("the rule %s has no name, severity, summary or description", r.Alert)
		}
	}
}

// TestSlurmGPUs checks that slurm-gpus.yaml records the metrics that Slurm exporters write.
func TestSlurmGPUs(t *testing.T) {
	var names []string
	for _, r := range checkedRules(t, "slurm-gpus.yaml") {
		names = append(names, r.Record)
	}
	want := []string{"slurm_gpus_total", "slurm_gpus_alloc", "slurm_gpus_idle", "slurm_gpus_utilization"}
	if !slices.Equal(names, want) {
		t.Errorf("slurm-gpus.yaml records %v, want %v", names, want)
	}
}

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct {
				Type  string
				Query any
			}
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	v, ids := agentVocabulary(t), map[int]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] || len(p.Targets) == 0 {
			t.Errorf("the panel %q has no targets, or an id that another panel has", p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			v.check(t, p.Title, target.Expr)
		}
	}
	for _, variable := range dashboard.Templating.List {
		query, ok := variable.Query.(map[string]any)
		if variable.Type != "query" {
			continue
		}
		text, _ := query["query"].(string)
		m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(text)
		if !ok || m == nil || !slices.Contains(v.metrics, m[1]) || !slices.Contains(v.labels, m[2]) {
			t.Errorf("the variable's query %q uses names that no agent writes", text)
		}
	}
	if len(ids) == 0 {
		t.Error("dashboard.json contains no panels")
	}
}
