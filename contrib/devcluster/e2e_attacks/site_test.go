//go:build e2e

package e2eattacks

import (
	"flag"
	"os"
	"testing"

	"caelum/contrib/devcluster/clustertest"
)

// attacker and victim are two unprivileged users.
const attacker, victim = clustertest.User, clustertest.Stranger

// parallel is the number of clusters that run at the same time.
const parallel = "3"

func TestMain(m *testing.M) {
	if os.Getenv(swapSocket) != "" {
		pass(3)
		os.Exit(0)
	}
	if os.Getenv(asHolder) != "" {
		os.Exit(holdDescriptors())
	}
	flag.Parse()
	flag.Set("test.parallel", parallel)
	os.Exit(m.Run())
}
