package main

import "testing"

// TestLaunches checks that launches finds slurmd's log lines about a batch script and about a first step, in the
// formats of Slurm up to 25.05 and from 25.11 on.
func TestLaunches(t *testing.T) {
	const log = `[2026-11-21T04:57:31.900] Launching batch job 7 for UID 20001
[2026-11-21T04:57:32.900] Launching batch JobId=7 for UID 20001
[2026-11-21T04:57:33.900] launch task StepId=7.0 request from UID:20001 GID:20001 HOST:127.0.0.1 PORT:40000
[2026-11-21T04:57:34.900] Launching batch JobId=77 for UID 20001
[2026-11-21T04:57:35.900] launch task StepId=7.1 request from UID:20001 GID:20001 HOST:127.0.0.1 PORT:40000
`
	at := launches(log, "7")
	if len(at) != 3 || at[0].Second() != 31 || at[1].Second() != 32 || at[2].Second() != 33 {
		t.Errorf("launched at %v", at)
	}
}
