package learn

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"caelum/internal/controller/decisions"
)

// TestSetLineInFullTable tests that SetLine omits the oldest learned lines if the new table would be too large, but
// none of the administrator's lines.
func TestSetLineInFullTable(t *testing.T) {
	const own = "profile 1g.5gb\ndefault 1g.5gb\n"
	learned := func(n int, comment string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "site %016x 1g.5gb%s\n", i, comment)
		}
		return b.String()
	}
	long := learned(1000, " #"+strings.Repeat("x", 1000))
	fill := "#" + strings.Repeat("x", decisions.MaxBytes-len(head+"7\n"+own+"#\n"+marker+long)) + "\n"
	for name, c := range map[string]struct {
		own, learned string
		kept         int
		fails        string
	}{
		"lines":     {own, learned(decisions.MaxLines-4, ""), decisions.MaxLines - 5, ""},
		"bytes":     {own + fill, long, 999, ""},
		"own lines": {own + strings.Repeat("#\n", decisions.MaxLines-4), "", 0, "more than 20000 lines"},
	} {
		before := head + "7\n" + c.own + marker + c.learned
		if faults := decisions.Check(before); len(faults) > 0 {
			t.Fatalf("%s: the table has faults before SetLine: %v", name, faults)
		}
		path := filepath.Join(t.TempDir(), "decisions")
		if err := os.WriteFile(path, []byte(before), 0o644); err != nil {
			t.Fatal(err)
		}
		want := before
		if c.fails == "" {
			kept := strings.Join(strings.SplitAfter(c.learned, "\n")[:c.kept], "")
			want = head + "8\n" + c.own + "partition gpu\n" + marker + kept
		}
		if _, err := SetLine(path, []string{"partition", "gpu"}); (err != nil) != (c.fails != "") ||
			err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: SetLine returned %v, want the error %q", name, err, c.fails)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: the table has %d bytes, %v; want %d", name, len(got), err, len(want))
		}
	}
}

// TestRemoveLine tests that RemoveLine removes the administrator's lines for a key, and no other lines.
func TestRemoveLine(t *testing.T) {
	const top = "profile 1g.5gb\ndefault 1g.5gb # small\n"
	const site, args = "site 0123456789abcdef 1g.5gb 600\n", "args 7:0123456789abcdef 1 64=1g.5gb *=1g.5gb\n"
	path := filepath.Join(t.TempDir(), "decisions")
	for _, c := range []struct {
		before, line, after, fails string
	}{
		{top + "partition gpu # A\npartition long\npartition gpu\n", "partition gpu", top + "partition long\n", ""},
		{top + "bypass whole\n" + marker + site, "bypass", top + marker + site, ""},
		{top + site + marker, "site 0123456789abcdef", top + marker, ""},
		{top + args + marker, "args 7:0123456789abcdef", top + marker, ""},
		{top + marker + args, "args 7:0123456789abcdef", "", ""},
		{top + marker + site, "site 0123456789abcdef", "", ""},
		{top + "partition gpu\n", "partition long", "", ""},
		{top, "partition", "", "also by its second word"},
		{top, "bypass whole", "", "also by its second word"},
		{top, "profile 1g.5gb", "", "also by its second word"},
		{top, "default", "", "the default line is missing"},
	} {
		before, want := head+"7\n"+c.before, head+"7\n"+c.before
		if c.after != "" {
			want = head + "8\n" + c.after
		}
		if err := os.WriteFile(path, []byte(before), 0o644); err != nil {
			t.Fatal(err)
		}
		changed, err := RemoveLine(path, strings.Fields(c.line))
		if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) ||
			changed != (c.after != "") {
			t.Errorf("RemoveLine %q returned %v, %v; want the error %q", c.line, changed, err, c.fails)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("after RemoveLine %q, the table is %q, %v; want %q", c.line, got, err, want)
		}
	}
}

// TestSetLine tests that SetLine replaces the lines for a key, keeps comments, other lines, owner and mode, and writes
// nothing if the table would not change or would be rejected.
func TestSetLine(t *testing.T) {
	const (
		top   = "profile 1g.5gb\nprofile 7g.40gb\n"
		own   = top + "default 7g.40gb # large\npartition gpu\n"
		site  = "site 0123456789abcdef 1g.5gb 600\n"
		other = "site 0123456789abcdee 1g.5gb\n"
		args  = "args 7:0123456789abcdef 1 64=1g.5gb *=7g.40gb\n"
	)
	path := filepath.Join(t.TempDir(), "decisions")
	for _, c := range []struct {
		before, line, after, fails string
	}{
		{own, "default 1g.5gb", top + "default 1g.5gb # large\npartition gpu\n", ""},
		{own, "default 7g.40gb", "", ""},
		{own, "partition gpu 1g.5gb grow=oom", top + "default 7g.40gb # large\npartition gpu 1g.5gb grow=oom\n", ""},
		{own, "partition long", own + "partition long\n", ""},
		{own + "partition gpu grow=off\n", "partition gpu 1g.5gb",
			top + "default 7g.40gb # large\npartition gpu 1g.5gb\n", ""},
		{own + marker + site + other, "site 0123456789abcdef 7g.40gb",
			own + "site 0123456789abcdef 7g.40gb\n" + marker + other, ""},
		{own + marker + args + site, "args 7:0123456789abcdef 2 8=1g.5gb *=7g.40gb",
			own + "args 7:0123456789abcdef 2 8=1g.5gb *=7g.40gb\n" + marker + site, ""},
		{own + marker + args + site, "key 7:0123456789abcdef 1g.5gb",
			own + "key 7:0123456789abcdef 1g.5gb\n" + marker + site, ""},
		{own + marker + args, "key 7:0123456789abcdee 1g.5gb",
			own + "key 7:0123456789abcdee 1g.5gb\n" + marker + args, ""},
		{own, "args 7:0123456789abcdef 1 *=1g.5gb", "", "must have the form args USER_ID:KEY"},
		{own, "bypass whole", own + "bypass whole\n", ""},
		{own + "bypass whole # since Monday\n", "bypass off", own + "bypass off # since Monday\n", ""},
		{own, "bypass gpu", "", `"gpu" also has a partition line`},
		{own, "bypass whole,long", "", "must have the form bypass PARTITION|off"},
		{own, "default 2g.10gb", "", `"2g.10gb" has no profile line`},
		{own, "grow on", "", "grow off|oom|forecast"},
		{own, "partition gpu#", "", "is not a valid word in the table"},
		{own, "partition g\npu", "", "is not a valid word in the table"},
		{own, "model a100 1g.5gb", "", "must begin with partition"},
		{own, "default", "", "must begin with partition"},
		{top, "default 7g.40gb", "", "the default line is missing"},
	} {
		before := head + "7\n" + c.before
		if err := os.WriteFile(path, []byte(before), 0o640); err != nil {
			t.Fatal(err)
		}
		if os.Getuid() == 0 {
			if err := os.Chown(path, 4711, 4712); err != nil {
				t.Fatal(err)
			}
		}
		changed, err := SetLine(path, strings.Split(c.line, " "))
		if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) ||
			changed != (c.after != "") {
			t.Errorf("SetLine %q returned %v, %v; want the error %q", c.line, changed, err, c.fails)
		}
		want := before
		if c.after != "" {
			want = head + "8\n" + c.after
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("after SetLine %q, the table is %q, %v; want %q", c.line, got, err, want)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o640 ||
			os.Getuid() == 0 && info.Sys().(*syscall.Stat_t).Uid != 4711 {
			t.Errorf("after SetLine %q, the file has another owner or mode: %+v, %v", c.line, info, err)
		}
	}
}
