// Package monitoring tests the alert rules and the dashboard for Prometheus and Grafana: their expressions may use only
// metrics and labels that the agent writes. The Go package consists only of tests.
package monitoring
