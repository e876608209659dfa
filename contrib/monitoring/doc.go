// Package monitoring tests the alert rules for Prometheus and the dashboard for Grafana: their expressions must use
// only metrics and labels that the agent writes. The Go package consists only of tests.
package monitoring
