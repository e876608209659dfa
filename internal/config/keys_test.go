package config

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/viper"
)

var rewrite = flag.Bool("rewrite", false, "write the table of keys to docs/configure.md, and etc/caelum.yaml")

const (
	page   = "../../docs/configure.md"
	header = "| key | default | values | restart | meaning |\n|---|---|---|---|---|\n"
)

// rows matches the rows of a table at the beginning of a text.
var rows = regexp.MustCompile(`^(\|.*\n)*`)

// text returns a value as in caelum.yaml, for the column "default".
func (k Key) text() string {
	if k.Unset != "" {
		return k.Unset
	}
	return fmt.Sprint(k.Default)
}

// row returns the key's line in the table.
func (k Key) row() string {
	values, _, _ := strings.Cut(k.Values, " (example")
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s [More](%s) |\n", k.Name, k.text(), values, k.Restart, k.Meaning,
		k.Page)
}

const (
	exampleFile = "../../etc/caelum.yaml"
	exampleHead = "The configuration of Caelum on this host. Every key is optional. Keys without a value have no " +
		"fixed default. docs/configure.md explains all keys, and `caelumd config` prints the values that apply."
)

// exampleOf returns the value in "(example: VALUE)".
var exampleOf = regexp.MustCompile(` \(example: (.*)\)`)

// example returns the key's lines in etc/caelum.yaml.
func (k Key) example() string {
	text := strings.ReplaceAll(k.Meaning, "`", "") + " Valid: " + exampleOf.ReplaceAllString(k.Values, "")
	value := fmt.Sprint(k.Default)
	if k.Unset != "" {
		text += ". Default: " + k.Unset
		if value = "..."; exampleOf.MatchString(k.Values) {
			value = exampleOf.FindStringSubmatch(k.Values)[1]
		}
	}
	return comment(strings.TrimSpace(text)+".") + "# " + k.Name + ": " + value + "\n"
}

// comment returns a text as comment lines of at most 120 columns.
func comment(text string) string {
	var b strings.Builder
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > 120 {
			fmt.Fprintln(&b, line)
			line = "#"
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}

// TestExample compares etc/caelum.yaml with the keys. The -rewrite flag writes the file.
func TestExample(t *testing.T) {
	want := comment(exampleHead)
	for _, k := range keys {
		want += "\n" + k.example()
	}
	got, err := os.ReadFile(exampleFile)
	if string(got) == want && err == nil {
		return
	}
	if !*rewrite {
		t.Fatalf("%s differs from the keys (%v); run: go test ./internal/config -rewrite", exampleFile, err)
	}
	if err := os.WriteFile(exampleFile, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPage compares the table in docs/configure.md with the keys. The -rewrite flag writes the table.
func TestPage(t *testing.T) {
	var table strings.Builder
	for _, k := range keys {
		table.WriteString(k.row())
	}
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), header)
	if !found {
		t.Fatalf("%s has no table with the header\n%s", page, header)
	}
	old := rows.FindString(rest)
	if old == table.String() {
		return
	}
	if !*rewrite {
		t.Fatalf("the table in %s differs from the keys; run: go test ./internal/config -rewrite", page)
	}
	if err := os.WriteFile(page, []byte(before+header+table.String()+rest[len(old):]), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestKeys checks that keys and Config have the same keys, and that each description is complete and short.
func TestKeys(t *testing.T) {
	var fields, names []string
	for f := range reflect.TypeFor[Config]().Fields() {
		fields = append(fields, f.Tag.Get("mapstructure"))
	}
	for _, k := range keys {
		names = append(names, k.Name)
		switch {
		case k.Values == "" || k.Meaning == "" || k.Page == "" || k.text() == "":
			t.Errorf("the description of %s is not complete", k.Name)
		case utf8.RuneCountInString(k.Meaning) > 250:
			t.Errorf("%s: the description has %d characters, more than 250", k.Name, utf8.RuneCountInString(k.Meaning))
		case !slices.Contains([]Services{Agent, Watcher, Both}, k.Restart):
			t.Errorf("%s: %q is not a service", k.Name, k.Restart)
		}
	}
	slices.Sort(fields)
	if !slices.Equal(fields, slices.Sorted(slices.Values(names))) {
		t.Errorf("Config has the keys %q, and the descriptions have %q", fields, names)
	}
}

// ranges matches the limits in Key.Values.
var ranges = regexp.MustCompile(`from ([0-9.a-z]+) to ([0-9.a-z]+)`)

// TestRanges checks that the limits in Key.Values are valid values, and that the next values outside are not.
func TestRanges(t *testing.T) {
	checked := 0
	for _, k := range keys {
		limits := ranges.FindStringSubmatch(k.Values)
		if limits == nil {
			continue
		}
		checked++
		for i, limit := range limits[1:] {
			if err := set(k.Name, limit); err != nil {
				t.Errorf("%s: the limit %s is not valid: %v", k.Name, limit, err)
			}
			if next := beyond(t, limit, i == 1, strings.HasSuffix(k.Values, "or 0")); set(k.Name, next) == nil {
				t.Errorf("%s: %s is valid, but it is not %s", k.Name, next, k.Values)
			}
		}
	}
	if checked < 8 {
		t.Errorf("only %d keys have limits", checked)
	}
}

// beyond returns a value outside of a limit, as text. If zero is true, 0 is valid although it is below the lower limit.
func beyond(t *testing.T, limit string, upper, zero bool) string {
	t.Helper()
	step := -0.01
	if upper {
		step = 1
	}
	if d, err := time.ParseDuration(limit); err == nil && d > 0 {
		return (d + time.Duration(step*float64(50*time.Millisecond))).String()
	}
	var n float64
	if _, err := fmt.Sscan(limit, &n); err != nil {
		t.Fatal(err)
	}
	if !upper && !zero {
		step = -1
	}
	return fmt.Sprint(n + step)
}

// set returns the error of a file that sets a key to a value, together with the keys that the key requires.
func set(key, value string) error {
	v := viper.New()
	v.SetConfigType("yaml")
	text := fmt.Sprintf("node: n1\n%s: %s\n", key, value)
	if err := v.ReadConfig(strings.NewReader(text)); err != nil {
		return err
	}
	_, err := parse(v)
	return err
}
