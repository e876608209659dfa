package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMetricsKeys loads valid and invalid values of the metrics keys. An empty error means that the value is valid.
func TestMetricsKeys(t *testing.T) {
	for line, want := range map[string]string{
		`metrics_file: ""`:                   "",
		`metrics_file: /srv/metrics/a.prom`:  "",
		`metrics_file: metrics/a.prom`:       "metrics_file: \"metrics/a.prom\" is neither an absolute path",
		`metrics_file: /srv/metrics/a`:       "metrics_file: \"/srv/metrics/a\" is neither an absolute path",
		`metrics_listen: ""`:                 "",
		`metrics_listen: 127.0.0.1:9488`:     "",
		`metrics_listen: "[::1]:9488"`:       "",
		`metrics_listen: ":9488"`:            "metrics_listen: \":9488\" is neither an IP address with a port",
		`metrics_listen: localhost:9488`:     "metrics_listen: \"localhost:9488\" is neither an IP address with a port",
		`metrics_listen: 127.0.0.1:0`:        "metrics_listen: \"127.0.0.1:0\" is neither an IP address with a port",
		`metrics_listen: 127.0.0.1:99999999`: "metrics_listen: \"127.0.0.1:99999999\" is neither an IP address",
	} {
		path := filepath.Join(t.TempDir(), "caelum.yaml")
		if err := os.WriteFile(path, []byte("node: n1\n"+line+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := load(path, 1)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Load returned %v, want %q", line, err, want)
		}
	}
	c := Defaults()
	if c.MetricsFile != "/run/caelum/caelum.prom" || c.MetricsListen != "" {
		t.Errorf("the defaults are %q and %q", c.MetricsFile, c.MetricsListen)
	}
}
