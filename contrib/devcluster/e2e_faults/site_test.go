//go:build e2e

package e2efaults

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
)

// user is the user who submits the jobs, and stranger another unprivileged user.
const user, stranger = clustertest.User, clustertest.Stranger

// tightest is the agents' configuration for tests that rely on speculative offers of small profiles.
const tightest = "testdata/tightest.yaml"

// parallel is the number of clusters that run at the same time.
const parallel = "3"

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(asStranger) != "" {
		os.Exit(beStranger())
	}
	flag.Set("test.parallel", parallel)
	os.Exit(m.Run())
}

// atLeastOne returns the value of an environment variable, which must be at least 1, or otherwise if the variable is
// not set.
func atLeastOne(t *testing.T, name string, otherwise int) int {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s is not a whole number above 0", name, text)
	}
	return n
}

// site is a running cluster.
type site struct {
	*clustertest.Site
	t *testing.T
}

func start(t *testing.T, o cluster.Options) *site {
	t.Helper()
	return &site{clustertest.Start(t, o), t}
}
