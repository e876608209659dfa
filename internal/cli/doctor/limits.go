package doctor

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// limitsTimeout is the timeout for sacctmgr, which would otherwise keep retrying for longer if slurmdbd is unreachable.
const limitsTimeout = 5 * time.Second

// readLimits returns the limits on gres/gpu as shown by sacctmgr.
func readLimits(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, limitsTimeout)
	defer cancel()
	var all []string
	for _, args := range [][]string{
		{"-nP", "show", "assoc", "format=Account,User,GrpTRES,GrpTRESMins,GrpTRESRunMins,MaxTRES,MaxTRESPerNode," +
			"MaxTRESMins"},
		{"-nP", "show", "qos", "format=Name,GrpTRES,GrpTRESMins,GrpTRESRunMins,MaxTRES,MaxTRESPerNode,MaxTRESMins," +
			"MaxTRESPerUser,MaxTRESPerAccount,MinTRES"},
	} {
		cmd := exec.CommandContext(ctx, "/usr/bin/sacctmgr", args...)
		cmd.WaitDelay = time.Second
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("couldn't run sacctmgr show %s: %w", args[2], err)
		}
		_, format, _ := strings.Cut(args[3], "=")
		all = append(all, parseLimits(args[2], strings.Split(format, ","), string(out))...)
	}
	return all, nil
}

func limits(f *Facts) []Finding {
	if len(f.Limits) == 0 {
		return nil
	}
	text := "limits on gres/gpu count slices of any size, not GPUs: " + strings.Join(f.Limits, "; ")
	if !slices.ContainsFunc(
		[]string{"limits", "safe", "all"},
		func(w string) bool { return f.Config.Has("AccountingStorageEnforce", w) },
	) {
		text += "; Slurm does not enforce these limits, because AccountingStorageEnforce does not include limits"
	}
	return []Finding{note(text)}
}

// parseLimits returns the limits on gres/gpu in the output of sacctmgr -nP, in the form "account research GrpTRES
// gres/gpu=4".
func parseLimits(kind string, columns []string, out string) []string {
	var all []string
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		if len(fields) != len(columns) {
			continue
		}
		owner := "QOS " + fields[0]
		if kind == "assoc" {
			owner = "account " + fields[0]
			if fields[1] != "" {
				owner = "user " + fields[1] + " of " + owner
			}
		}
		for i, value := range fields {
			if !strings.Contains(columns[i], "TRES") {
				continue
			}
			for tres := range strings.SplitSeq(value, ",") {
				if strings.HasPrefix(tres, "gres/gpu=") || strings.HasPrefix(tres, "gres/gpu:") {
					all = append(all, owner+" "+columns[i]+" "+tres)
				}
			}
		}
	}
	return all
}
