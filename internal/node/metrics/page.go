package metrics

import (
	"bytes"
	"time"

	"github.com/prometheus/common/expfmt"
)

// pageInterval is the minimum time between readings of the agent's state. It limits the work that a user on the host
// can cause by sending requests to the HTTP port.
const pageInterval = time.Second

// format is Prometheus's text format, which node_exporter also reads.
var format = expfmt.NewFormat(expfmt.TypeTextPlain)

// text returns the text of all metrics, at most pageInterval old.
func (m *Metrics) text() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.page != nil && time.Since(m.pageAt) < pageInterval {
		return m.page, nil
	}
	families, err := m.registry.Gather()
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&page, f); err != nil {
			return nil, err
		}
	}
	m.page, m.pageAt = page.Bytes(), time.Now()
	return m.page, nil
}
