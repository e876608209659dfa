package slurm

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// Together with playEnv, these environment variables make the test binary run for a long time. With connectEnv, it
// connects to an address; without it, it is like a command that waits before its next attempt.
const (
	connectEnv = "CAELUM_TEST_CONNECT"
	waitEnv    = "CAELUM_TEST_WAIT"
)

func playSlowly() {
	if address := os.Getenv(connectEnv); address != "" {
		c, err := net.Dial("tcp", address)
		if err != nil {
			os.Exit(1)
		}
		defer c.Close()
	}
	if d, err := time.ParseDuration(os.Getenv(waitEnv)); err == nil {
		time.Sleep(d)
	}
}

// TestUpdateRunsOnce checks an update of a node while slurmctld does not accept connections. The update must end before
// scontrol can retry.
func TestUpdateRunsOnce(t *testing.T) {
	ctx := context.Background()
	gres := []GRES{{"mig", "closed", 1}}
	began := time.Now()
	c, calls := stage(t, scene{})
	c.env = append(c.env, waitEnv+"=20s")
	if err := c.UpdateNode(ctx, "n1", gres, ""); !errors.Is(err, ErrUnreachable) || len(calls()) != 1 {
		t.Errorf("not connected: %v after %v", err, calls())
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("not connected: the update took %v", took)
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c, calls = stage(t, scene{})
	c.env = append(c.env, connectEnv+"="+listener.Addr().String(), waitEnv+"="+(3*connecting).String())
	if err := c.UpdateNode(ctx, "n1", gres, ""); err != nil || len(calls()) != 1 {
		t.Errorf("connected, but the answer is slow: %v after %v", err, calls())
	}
}
