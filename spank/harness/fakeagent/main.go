// Command fakeagent replaces caelumd in experiments with the plugin on a real Slurm cluster. It answers the plugin's
// calls and writes lease files, but does not create slices. Never install it.
//
// On every call, fakeagent reads <run dir>/mode, so that a script can change its behaviour. The file consists of one of
// the following lines:
//
//	ok             writes a lease with a slice for every slot
//	some N         writes a lease with slices for the first N slots only
//	error TEXT     writes a lease with this error
//	nothing        answers 200 and writes no lease file
//	later          answers 503
//	broken TEXT    answers 500
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"caelum/internal/node/api"
)

func main() {
	runDir := flag.String("run-dir", api.DefaultRunDir, "directory of the socket and the lease files")
	index := flag.String("index", "absolute", "how Slurm numbers CUDA_VISIBLE_DEVICES: absolute or relative")
	flag.Parse()
	if err := os.MkdirAll(filepath.Join(*runDir, "jobs"), 0o700); err != nil {
		log.Fatal(err)
	}
	l, err := api.Listen(*runDir, nil)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(api.NewServer(agent{*runDir, *index}).Serve(l))
}

type agent struct{ runDir, index string }

func (a agent) path(job uint32) string { return filepath.Join(a.runDir, "jobs", fmt.Sprint(job)) }

func (a agent) Lease(_ context.Context, job uint32, r api.LeaseRequest) (*api.Lease, error) {
	log.Printf("lease %d %+v", job, r)
	mode, _ := os.ReadFile(filepath.Join(a.runDir, "mode"))
	verb, rest, _ := strings.Cut(strings.TrimSpace(string(mode)), " ")
	slices := len(r.Slots)
	var body strings.Builder
	switch verb {
	case "nothing":
		return &api.Lease{Job: job}, nil
	case "later":
		return nil, api.NotNow("slurmctld does not answer")
	case "broken":
		return nil, errors.New(rest)
	case "error":
		fmt.Fprintf(&body, "error %s\n", rest)
		r.Slots = nil
	case "some":
		slices, _ = strconv.Atoi(rest)
	}
	for i, slot := range r.Slots {
		uuid := "-"
		if i < slices {
			uuid = fmt.Sprintf("MIG-00000000-0000-0000-0000-%012d", slot)
		}
		fmt.Fprintf(&body, "slot %d %s\n", slot, uuid)
	}
	text := fmt.Sprintf(
		"caelum-lease 1\njob %d\nrestart %d\nuid %d\nindex %s\n%send\n",
		job,
		r.Restart,
		r.UID,
		a.index,
		body.String(),
	)
	if err := os.WriteFile(a.path(job)+".new", []byte(text), 0o600); err != nil {
		return nil, err
	}
	return &api.Lease{Job: job, Restart: r.Restart, Slots: r.Slots}, os.Rename(a.path(job)+".new", a.path(job))
}

func (a agent) Release(_ context.Context, job uint32, restart int) error {
	log.Printf("release %d restart %d", job, restart)
	os.Remove(a.path(job))
	return nil
}

func (a agent) Job(context.Context, uint32) (*api.Lease, error) {
	return nil, api.NotFound("fakeagent does not record leases")
}

func (a agent) Status(context.Context) (*api.Status, error) { return &api.Status{Node: "fake"}, nil }
