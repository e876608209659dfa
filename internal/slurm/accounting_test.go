package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// accounted returns output of sacct 22.05.8 that lists a named job, the two tasks of an array, the two runs of a
// requeued job, a het job that never started, and a job that was ended by a signal.
func accounted(lines ...string) scene {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(strings.ReplaceAll(l, "|", recordedSep) + recordedSep + "\n")
	}
	return scene{out: b.String()}
}

var sacctLines = []string{
	"1|1|1|20001|user1|research|COMPLETED|0:0|1795341816|1795341817|n1|caelum:key=c5c7ae8f58618928 " +
		"caelum:sized=7g.40gb|",
	"3|2_0|2|20001|user1|research|FAILED|3:0|1795341816|1795341817|n1|caelum:key=3a91e4b646352ca3|a\n2 2_1 3 " +
		"several lines",
	"2|2_1|3|20001|user1|research|CANCELLED by 20001|0:9|1795341817|1795341819|n[1-2]|caelum:key=3a91e4b646352ca3|x",
	"8|8|13|20001|user1|research|REQUEUED|0:0|1795341951|1795341954|n2|caelum:key=cb432307e0242363|",
	"8|8|15|20001|user1|research|RUNNING|0:0|1795341956|Unknown|n2|caelum:key=cb432307e0242363|",
	"5|5+0|9|20001|user1|research|CANCELLED by 20001|0:0|None|1795341951|None assigned||h",
}

func TestRecords(t *testing.T) {
	c, calls := stage(t, accounted(sacctLines...))
	got, err := c.Records(context.Background(), SystemComment, time.Unix(1795341000, 0), time.Unix(1795342000, 0))
	if err != nil || len(got) != 6 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	var b strings.Builder
	for _, r := range got {
		fmt.Fprintf(
			&b,
			"%d %s %d %d %s %s %d %d-%d %v %q %q\n",
			r.ID,
			r.Ref,
			r.Index,
			r.UID,
			r.User,
			r.State,
			r.Exit,
			max(r.Start.Unix(), 0),
			max(r.End.Unix(), 0),
			r.Nodes,
			r.Comment,
			r.Text,
		)
	}
	const sized = `"caelum:key=c5c7ae8f58618928 caelum:sized=7g.40gb"`
	const want = `1 1 1 20001 user1 COMPLETED 0 1795341816-1795341817 [n1] ` + sized + ` ""
3 2_0 2 20001 user1 FAILED 3 1795341816-1795341817 [n1] "caelum:key=3a91e4b646352ca3" "a\n2 2_1 3 several lines"
2 2_1 3 20001 user1 CANCELLED 137 1795341817-1795341819 [n1 n2] "caelum:key=3a91e4b646352ca3" "x"
8 8 13 20001 user1 REQUEUED 0 1795341951-1795341954 [n2] "caelum:key=cb432307e0242363" ""
8 8 15 20001 user1 RUNNING 0 1795341956-0 [n2] "caelum:key=cb432307e0242363" ""
5 5+0 9 20001 user1 CANCELLED 0 0-1795341951 [] "" "h"
`
	if b.String() != want {
		t.Errorf("\n%s", b.String())
	}
	call := calls()[0]
	for _, part := range []string{
		`"-a" "-D" "-X" "-n" "-p"`,
		`"-S" "uts1795341000" "-E" "uts1795342000"`,
		`,AdminComment,SystemComment"`,
	} {
		if !strings.Contains(call, part) {
			t.Errorf("the call %s does not contain %s", call, part)
		}
	}
	if strings.Contains(call, "JobName") ||
		strings.Contains(strings.ReplaceAll(call, "AdminComment,SystemComment", ""), "Comment") {
		t.Errorf("the request has fields that users write: %s", call)
	}
}

func TestAllocations(t *testing.T) {
	const run = "|20001|user1|research|COMPLETED|0:0|1795341816|1795341817|n1||gpu|1795341800|"
	const slice = "gres/mig:1g.5gb=1,gres/mig=1"
	c, calls := stage(t, accounted(
		"1|1|1"+run+"60|cpu=1,gres/gpu=1,"+slice+"|cpu=1,gres/gpu:a100=1,gres/gpu=1,"+slice+"|",
		"2|2|2"+run+"UNLIMITED|||",
		"3|3|3"+run+"|gres/mig=x||",
	))
	got, err := c.Allocations(context.Background(), AdminComment, time.Unix(1795341000, 0), time.Unix(1795342000, 0))
	if err != nil || len(got) != 2 { // the third record cannot be parsed
		t.Fatalf("%d records, %v", len(got), err)
	}
	const want = "1 gpu 1795341800 1h0m0s gpu:1,mig:1g.5gb:1,mig:1 gpu:a100:1,gpu:1,mig:1g.5gb:1,mig:1"
	a := got[0]
	if fmt.Sprint(a.ID, " ", a.Partition, " ", a.Submitted.Unix(), " ", a.Limit, " ", a.Requested, " ", a.Allocated) !=
		want {
		t.Error(a)
	}
	if a := got[1]; a.ID != 2 || a.Limit != 0 || a.Requested != nil || a.Allocated != nil {
		t.Error(a)
	}
	const columns = ",AdminComment,Partition,Submit,TimelimitRaw,ReqTRES,AllocTRES,AdminComment\""
	if call := calls()[0]; !strings.Contains(call, columns) {
		t.Error(call)
	}
}

// TestAllocationsOf checks which records are found for a job, an array, an array task and a component of a het job.
func TestAllocationsOf(t *testing.T) {
	const run = "20001|user1|research|COMPLETED|0:0|1795341816|1795341817|n1||gpu|1795341800|60|||"
	for _, c := range []struct{ ref, args, want string }{
		{"12", `"-j" "12"`, "1 2 3 4 5"},
		{"12_3", `"-j" "12_3"`, "2"},
		{"12+1", `"-j" "12"`, "5"},
		{"13", `"-j" "13"`, "2"}, // the task's own id
		{"1", `"-j" "1"`, ""},
		{"12_9", `"-j" "12_9"`, ""},
		{"12_", "", ""},
		{"-a", "", ""},
	} {
		client, calls := stage(t, accounted("12|12+1|5|"+run, "13|12_3|2|"+run, "12|12|1|"+run, "12|12_4|3|"+run,
			"12|12_[5-9]|4|"+run))
		got, err := client.AllocationsOf(context.Background(), AdminComment, c.ref)
		var indexes []string
		for _, a := range got {
			indexes = append(indexes, fmt.Sprint(a.Index))
		}
		if text := strings.Join(indexes, " "); text != c.want || (c.want == "") != (err != nil) {
			t.Errorf("%s: %q, %v", c.ref, text, err)
		}
		if c.args != "" && !strings.HasSuffix(calls()[0], c.args+"]") || c.args == "" && len(calls()) > 0 {
			t.Errorf("%s: %v", c.ref, calls())
		}
	}
}

// TestRecordsOf checks that the runs of one job are returned in order, without the runs of other tasks of the same
// array.
func TestRecordsOf(t *testing.T) {
	c, calls := stage(t, accounted(sacctLines[4], sacctLines[3], sacctLines[2]), accounted(sacctLines[2]))
	got, err := c.RecordsOf(context.Background(), AdminComment, 8)
	if err != nil || len(got) != 2 || got[0].State != "REQUEUED" || got[1].State != "RUNNING" {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := c.RecordsOf(context.Background(), AdminComment, 8); !errors.Is(err, ErrNoJob) {
		t.Errorf("%v", err)
	}
	if call := calls()[0]; !strings.HasSuffix(call, `"-S" "uts1000000" "-j" "8"]`) {
		t.Errorf("%s", call)
	}
}

// TestRecordsSpoilt checks that the result omits a record that cannot be parsed, and that truncated output causes an
// error.
func TestRecordsSpoilt(t *testing.T) {
	for _, bad := range []string{
		"x|1|1|1|u|a|COMPLETED|0:0|1|2|n1||", "0|1|1|1|u|a|COMPLETED|0:0|1|2|n1||",
		"1|1|1|1|u|a|COMPLETED|zero|1|2|n1||", "1|1|1|1|u|a|COMPLETED|0:0|today|2|n1||",
		"1|1|1|1|u|a|COMPLETED|0:0|1|2|n[1||", "1|1|-1|1|u|a|COMPLETED|0:0|1|2|n1||",
	} {
		c, _ := stage(t, accounted(bad, sacctLines[0]))
		if got, err := c.Records(context.Background(), AdminComment, time.Now(), time.Now()); err != nil ||
			len(got) != 1 ||
			got[0].ID != 1 ||
			got[0].State != "COMPLETED" ||
			got[0].Index != 1 {
			t.Errorf("%s: %+v %v", bad, got, err)
		}
	}
	whole := accounted(sacctLines...).out
	for _, cut := range []int{1, 20, len(recordedSep) + 1, 200} {
		c, _ := stage(t, scene{out: whole[:len(whole)-cut]})
		if got, err := c.Records(context.Background(), AdminComment, time.Now(), time.Now()); err == nil {
			t.Errorf("output without its last %d bytes: no error, %d records", cut, len(got))
		}
	}
	forged := slices.Clone(sacctLines)
	forged[1] += "|x\n9|9|9" // this text contains the separator, as if a user had guessed it
	c, _ := stage(t, accounted(forged...))
	if got, err := c.Records(context.Background(), AdminComment, time.Now(), time.Now()); err == nil {
		t.Errorf("a text that contains separators: no error, %d records", len(got))
	}
	c, calls := stage(t)
	if _, err := c.Records(context.Background(), "Comment", time.Now(), time.Now()); err == nil || len(calls()) != 0 {
		t.Errorf("the field Comment, which users can write: error %v", err)
	}
}

// TestNames checks that newlines and quotes are returned as part of a name, and that a name that looks like the end
// of a field causes an error and never changes another job's name.
func TestNames(t *testing.T) {
	c, _ := stage(t, accounted("1|we`ird\n;name", "2|train", "3|"), accounted("1|x|\n2|forged", "2|train"))
	got, err := c.Names(context.Background(), time.Unix(1, 0), time.Unix(2, 0))
	if err != nil || len(got) != 3 || got[1] != "we`ird\n;name" || got[2] != "train" || got[3] != "" {
		t.Errorf("%v %v", got, err)
	}
	if got, err := c.NamesOf(context.Background(), "12"); err == nil {
		t.Errorf("%v", got)
	}
}

func TestSetAccounting(t *testing.T) {
	over := Record{ID: 2, Ref: "2_1", End: time.Unix(1795341819, 0)}
	text := "caelum:key=ab JS1:é caelum:run=N1,7g.40gb,A100,at=1,ran=2s,peak=5M,samples=2 $(id) ; x"
	c, calls := stage(t, scene{out: " Modified jobs...\n"})
	lower := strings.ReplaceAll(text, "JS1", "js1")
	if err := c.SetAccounting(context.Background(), over, AdminComment, lower); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(
		`["-i" "modify" "job" "where" "jobid=2_1" "set" %q]`,
		"AdminComment="+strings.ReplaceAll(text, "JS1", "js1"),
	)
	if got := calls(); len(got) != 1 || got[0] != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	running, odd := over, over
	running.End, odd.Ref = time.Time{}, "2 set AdminComment=x"
	for name, c := range map[string]struct {
		r     Record
		field AccountingField
		text  string
		want  error
	}{
		"running job":          {running, AdminComment, "x", ErrJobState},
		"another tool's quote": {over, SystemComment, `it's caelum:run=x`, ErrSpoils},
		"a NUL":                {over, AdminComment, "a\x00b", nil},
		"too long":             {over, AdminComment, strings.Repeat("x", textMost+1), nil},
		"unknown field":        {over, "Comment", "x", nil},
		"invalid job id":       {odd, AdminComment, "x", nil},
	} {
		client, calls := stage(t)
		if err := client.SetAccounting(context.Background(), c.r, c.field, c.text); err == nil ||
			c.want != nil && !errors.Is(err, c.want) ||
			len(calls()) != 0 {
			t.Errorf("%s: %v, %v", name, err, calls())
		}
	}
}

// TestNoAccounting checks the error for a slurmdbd that refuses connections.
func TestNoAccounting(t *testing.T) {
	const stderr = "sacctmgr: error: slurm_persist_conn_open_without_init: failed to open persistent connection to " +
		"host:127.0.0.1:6819: Connection refused\n"
	c, _ := stage(t, scene{err: stderr}, scene{err: stderr}, scene{err: stderr})
	_, err := c.Records(context.Background(), AdminComment, time.Now(), time.Now())
	_, err2 := c.Names(context.Background(), time.Now(), time.Now())
	err3 := c.SetAccounting(context.Background(), Record{Ref: "1", End: time.Now()}, AdminComment, "x")
	for _, err := range []error{err, err2, err3} {
		if !errors.Is(err, ErrNoAccounting) || errors.Is(err, ErrUnreachable) {
			t.Errorf("%v", err)
		}
	}
}

// TestSetAccountingKeepsCapitals checks that SetAccounting accepts another tool's capital letters only from 23.02 on,
// when sacctmgr began to preserve them.
func TestSetAccountingKeepsCapitals(t *testing.T) {
	over := Record{ID: 2, Ref: "2", End: time.Unix(1795341819, 0)}
	const text = "JS1:H4sI caelum:run=x"
	for version, want := range map[string]error{
		"slurm-wlm 22.05.8\n": ErrSpoils,
		"slurm 23.02.8\n":     nil,
		"slurm 26.05.3\n":     nil,
	} {
		c, calls := stage(t, scene{out: version}, scene{out: " Modified jobs...\n"})
		err := c.SetAccounting(context.Background(), over, AdminComment, text)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", version, err)
		}
		got := calls()
		if got[0] != `["-V"]` || want == nil && (len(got) != 2 || !strings.Contains(got[1], text)) ||
			want != nil && len(got) != 1 {
			t.Errorf("%s: calls %v", version, got)
		}
	}
	c, calls := stage(t, scene{out: "sacctmgr\n"})
	if err := c.SetAccounting(context.Background(), over, AdminComment, text); err == nil || len(calls()) != 1 {
		t.Errorf("an unknown release: %v", err)
	}
}

// TestManyRecords checks that records of more than maxOutput are an error, unless they belong to other tasks of the
// array whose id the job has.
func TestManyRecords(t *testing.T) {
	line := strings.ReplaceAll(sacctLines[1], "\n", " ") + strings.Repeat("x", 60000)
	const script = `#!/bin/sh
for o; do case $o in --delimiter=*) sep=${o#*=};; esac; done
line="$(printf %s '<line>' | sed "s/|/$sep/g")$sep"
yes "$line" | head -n <count>
printf '4%s\n' "${line#3}"
`
	size := len(line) + (strings.Count(line, "|")+1)*len(recordedSep)
	text := strings.NewReplacer("<line>", line, "<count>", fmt.Sprint(maxOutput/size+1)).Replace(script)
	sacct := filepath.Join(t.TempDir(), "sacct")
	if err := os.WriteFile(sacct, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	c := New(Options{Sacct: sacct, Timeout: time.Minute})
	if all, err := c.Records(t.Context(), AdminComment, time.Time{}, time.Now()); !errors.Is(err, ErrTooLong) {
		t.Errorf("%d records, %v", len(all), err)
	}
	if own, err := c.RecordsOf(t.Context(), AdminComment, 4); err != nil || len(own) != 1 {
		t.Errorf("%d records of the job, %v", len(own), err)
	}
}
