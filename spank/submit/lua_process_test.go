package jobsubmit

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// process is a Lua interpreter that runs fuzz.lua. fuzz.lua loads job_submit.lua and answers questions.
type process struct {
	name string
	in   *bufio.Writer
	out  *bufio.Reader
}

// fields holds the values in a question or an answer, as strings or float64.
type fields map[string]any

// reply is the script's answer: the messages to the user, the log lines and the writes, each in order.
type reply struct {
	rc            int
	messages, log []string
	writes        []write
}

type write struct {
	field string
	value any
}

func start(f *testing.F, lua, table string) *process {
	f.Helper()
	cmd := exec.Command(lua, "fuzz.lua", "job_submit.lua")
	cmd.Env = append(os.Environ(), "CAELUM_DECISIONS="+table)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		f.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		f.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.Fatalf("couldn't start %s: %v; install %[1]s", lua, err)
	}
	f.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return &process{lua, bufio.NewWriter(in), bufio.NewReader(out)}
}

// both starts the oldest and newest Lua versions that Slurm can be built with. The two processes read the same table.
func both(f *testing.F) (lua [2]*process, table string) {
	table = f.TempDir() + "/decisions"
	return [2]*process{start(f, "lua5.1", table), start(f, "lua5.4", table)}, table
}

func (p *process) ask(t *testing.T, word string, q fields) reply {
	t.Helper()
	fmt.Fprintf(p.in, "%s %d\n", word, len(q))
	for _, name := range slices.Sorted(maps.Keys(q)) {
		kind, value := "s", ""
		switch v := q[name].(type) {
		case string:
			value = v
		case float64:
			kind, value = "n", strconv.FormatFloat(v, 'f', -1, 64)
		default:
			t.Fatalf("%s is a %T", name, v)
		}
		fmt.Fprintf(p.in, "%s %s %d\n%s", kind, name, len(value), value)
	}
	if err := p.in.Flush(); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	var r reply
	for range number(t, p.line(t)[0]) {
		head := p.line(t)
		kind, name, length := head[0], head[1], number(t, head[2])
		text := make([]byte, length)
		if _, err := io.ReadFull(p.out, text); err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		field, written := strings.CutPrefix(name, "write.")
		switch {
		case name == "raised":
			t.Fatalf("%s: %s", p.name, text)
		case name == "said":
			r.messages = append(r.messages, string(text))
		case name == "log":
			r.log = append(r.log, string(text))
		case name == "rc":
			r.rc = number(t, string(text))
		case written && kind == "n":
			v, _ := strconv.ParseFloat(string(text), 64)
			r.writes = append(r.writes, write{field, v})
		case written:
			r.writes = append(r.writes, write{field, string(text)})
		}
	}
	return r
}

func (p *process) line(t *testing.T) []string {
	t.Helper()
	text, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%s has ended: %v", p.name, err)
	}
	return strings.Fields(text)
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
