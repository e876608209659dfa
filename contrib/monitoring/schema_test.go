package monitoring

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// validate checks a dashboard against Grafana's schema: the dashboard, its panels and their Prometheus queries.
func validate(text []byte) error {
	// The SDK does not check the options and queries of kinds that are not registered.
	kinds := cog.NewRuntime()
	kinds.RegisterPanelcfgVariant(stat.VariantConfig())
	kinds.RegisterPanelcfgVariant(table.VariantConfig())
	kinds.RegisterPanelcfgVariant(timeseries.VariantConfig())
	kinds.RegisterDataqueryVariant(prometheus.VariantConfig())
	//lint:ignore SA1019 dashboard.json has this version of the schema, which Grafana can import
	var d dashboard.Dashboard
	// The SDK returns an empty list of errors, which is not nil, for a valid dashboard.
	if err := d.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
		return err
	}
	return d.Validate()
}

// TestSchema checks dashboard.json against Grafana's schema, and that the check finds errors.
func TestSchema(t *testing.T) {
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := validate(text); err != nil {
		t.Errorf("dashboard.json: %v", err)
	}
	for _, c := range []struct{ name, from, to, want string }{
		{"unknown field of the dashboard", `"refresh":`, `"reload":`, "unexpected field 'reload'"},
		{"wrong type", `"schemaVersion": 39`, `"schemaVersion": "39"`, "schemaVersion"},
		{"missing field of a panel", `"type": "timeseries",`, ``, "type"},
		{"unknown field of a panel", `"gridPos":`, `"position":`, "unexpected field 'position'"},
		{"unknown option of a time series", `"fillOpacity":`, `"opacity":`, "unexpected field 'opacity'"},
		{"unknown field of a query", `"legendFormat":`, `"legend":`, "unexpected field 'legend'"},
		{"missing expression of a query", `"expr":`, `"interval":`, "expr"},
	} {
		changed := bytes.Replace(text, []byte(c.from), []byte(c.to), 1)
		if bytes.Equal(changed, text) {
			t.Errorf("%s: dashboard.json does not contain %q", c.name, c.from)
			continue
		}
		if err := validate(changed); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
