package doctor

import (
	"context"
	"os/exec"
	"strings"
	"time"
)

// limitsTimeout bounds sacctmgr, which tries an unreachable slurmdbd for longer.
const limitsTimeout = 5 * time.Second

// readLimits asks slurmdbd for limits on gres/gpu. Not every host has sacctmgr, and nothing depends on the answer.
func readLimits(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, limitsTimeout)
	defer cancel()
	var all []string
	for _, args := range [][]string{
		{"-nP", "show", "assoc", "format=Account,User,GrpTRES,MaxTRES"},
		{"-nP", "show", "qos", "format=Name,GrpTRES,MaxTRESPerUser,MaxTRES"},
	} {
		cmd := exec.CommandContext(ctx, "/usr/bin/sacctmgr", args...)
		cmd.WaitDelay = time.Second
		out, err := cmd.Output()
		if err != nil {
			return nil
		}
		_, format, _ := strings.Cut(args[3], "=")
		all = append(all, parseLimits(args[2], strings.Split(format, ","), string(out))...)
	}
	return all
}

// parseLimits keeps the rows of sacctmgr -nP that limit gres/gpu: "account research GrpTRES gres/gpu=4".
func parseLimits(kind string, columns []string, out string) []string {
	var all []string
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		if len(fields) != len(columns) {
			continue
		}
		who := "QOS " + fields[0]
		if kind == "assoc" {
			who = "account " + fields[0]
			if fields[1] != "" {
				who = "user " + fields[1] + " of " + who
			}
		}
		for i, value := range fields {
			if !strings.Contains(columns[i], "TRES") {
				continue
			}
			for tres := range strings.SplitSeq(value, ",") {
				if strings.HasPrefix(tres, "gres/gpu=") || strings.HasPrefix(tres, "gres/gpu:") {
					all = append(all, who+" "+columns[i]+" "+tres)
				}
			}
		}
	}
	return all
}
