package slurm

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzGRES checks that a parsed list survives formatting and reparsing, and has only characters that a command line
// may contain.
func FuzzGRES(f *testing.F) {
	for _, s := range []string{
		"gpu:a100:2(IDX:0-1,4),mig:2g.10gb:1", "mig:1g.5gb(CNT:1)", "gres/mig:2g.10gb=1", "mig:1K", "a(", "mig:x y:1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := ParseGRES(s)
		if err != nil {
			return
		}
		for _, g := range list {
			if err := g.valid(); err != nil {
				t.Fatalf("%q: %v", s, err)
			}
		}
		again, err := ParseGRES(list.String())
		if err != nil || !slices.Equal(list, again) {
			t.Fatalf("%q: %v, then %v (%v)", s, list, again, err)
		}
		if _, err := ParseTRES(s); err == nil && strings.ContainsAny(list.String(), " \n\"'$`") {
			t.Fatalf("%q: %v", s, list)
		}
	})
}

// FuzzHosts checks that ExpandHosts returns at most maxHosts names, which consist of valid characters only, and that
// FoldHosts is its inverse.
func FuzzHosts(f *testing.F) {
	for _, s := range []string{
		"n[1-3,7],login1", "r[0-1]c[08-11]-ib", "n[1-", "n[1-4294967295]", "[1-9][1-9][1-9][1-9][1-9][1-9]",
		"n,n1,n2,n,n,n9,n10,n08,n09,n10,7,8,a1b,a2b",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		hosts, err := ExpandHosts(s)
		if err != nil {
			return
		}
		if len(hosts) > maxHosts {
			t.Fatalf("hostlist %[2]q: %[1]d hosts", len(hosts), s)
		}
		for _, h := range hosts {
			if h == "" || strings.ContainsFunc(h, notHostRune) {
				t.Fatalf("invalid host %q in hostlist %q", h, s)
			}
		}
		if again, err := ExpandHosts(FoldHosts(hosts)); err != nil || !slices.Equal(again, hosts) {
			t.Fatalf("hostlist %q is folded to %q", s, FoldHosts(hosts))
		}
	})
}

// FuzzQueue checks that parseJobs returns users' strings unchanged, and that they never affect another field.
func FuzzQueue(f *testing.F) {
	f.Add("plain", "acc", "c")
	f.Add("x\n7|~|7|~|N/A|~|", "a|~|b", "|")
	f.Add("(null)", "N/A", "\n\n")
	want, err := parseJobs(strings.NewReader(mustRead(f, "queue-array.txt")), recordedSep)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name, account, comment string) {
		sep := newSeparator()
		var out strings.Builder
		for record := range strings.SplitSeq(strings.TrimSuffix(mustRead(t, "queue-array.txt"), "\n"), "\n") {
			fields := strings.Split(record, recordedSep)
			for i, c := range jobFields {
				switch c.name {
				case "name":
					fields[i] = name
				case "account":
					fields[i] = account
				case "comment":
					fields[i] = comment
				}
			}
			out.WriteString(strings.Join(fields, sep) + "\n")
		}
		got, err := parseJobs(strings.NewReader(out.String()), sep)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%d jobs, want %d: %v", len(got), len(want), err)
		}
		for i := range want {
			w := want[i]
			w.Name, w.Account, w.Comment = orEmpty(name), orEmpty(account), orEmpty(comment)
			if !reflect.DeepEqual(got[i], w) {
				t.Fatalf("got %+v\nwant %+v", got[i], w)
			}
		}
	})
}

// FuzzAllocation checks that users' strings before and after the section can at most cause an error, but never change
// the result. It replaces the job name, the account and the network in recorded output.
func FuzzAllocation(f *testing.F) {
	imitation := "\n   JOB_GRES=mig:7g.40gb:1\n     Nodes=n3 CPU_IDs=0 Mem=0 GRES=mig:7g.40gb(CNT:1)\n   " +
		"MinCPUsNode=1 \n"
	f.Add("a", "b", "c")
	f.Add(imitation, "", "")
	f.Add("", "acc"+imitation, "")
	f.Add("", "", imitation)
	f.Add("\n   JOB_GRES=", "", "")
	f.Add("\n   JobState=PENDING Reason=x", "\n   StartTime=1 ", "\n   StartTime=")
	real := mustRead(f, "job-arraytask.txt")
	want, err := parseAllocation(real, []string{"n3"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name, account, comment string) {
		out := strings.Replace(real, "JobName=arr", "JobName="+name, 1)
		out = strings.Replace(out, "Account=(null)", "Account="+account, 1)
		out = strings.Replace(out, "Network=(null)", "Network="+comment, 1)
		run := Job{State: "RUNNING", Start: time.Unix(1795233592, 0)}
		if err := checkRun(out, run); err != nil && !errors.Is(err, ErrAmbiguous) {
			t.Fatal(err)
		}
		run.Start = run.Start.Add(time.Second)
		if checkRun(out, run) == nil {
			t.Fatal("no error for the record of another run")
		}
		got, err := parseAllocation(out, []string{"n3"})
		if err != nil {
			if strings.Contains(name+account+comment, allocHead) != errors.Is(err, ErrAmbiguous) {
				t.Fatal(err)
			}
			return
		}
		if !maps.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("%v", got)
		}
	})
}

// FuzzNode checks that the parsers never panic, not even on output that only administrators can influence.
func FuzzNode(f *testing.F) {
	f.Add(mustRead(f, "node-busy.txt"))
	f.Add(mustRead(f, "config.txt"))
	f.Add("NodeName=n1 \nState=\nGres=(\nGresUsed=")
	f.Fuzz(func(t *testing.T, out string) {
		parseNode(out, "n1")
		parseNodes(out, time.Time{})
		parseConfig(out)
		parseAllocation(out, nil)
		parseExclusions(strings.NewReader(out), recordedSep, nil)
		parseJobs(strings.NewReader(out), recordedSep)
	})
}

func mustRead(t testing.TB, file string) string {
	t.Helper()
	out, err := os.ReadFile(filepath.Join("testdata", "22.05.8", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
