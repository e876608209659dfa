package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"

	"caelum/internal/core/mig"
)

// Fault is an invalid or questionable entry in a configuration file.
type Fault struct {
	Line int // 0 if unknown
	Text string
	// Warning is true if the agent accepts the entry on at least some GPUs.
	Warning bool
}

// CheckFile returns all faults in the file at path, in line order. It rejects the files that Load rejects, as well as
// files that repeat a key with different capitalization. It does not check whether other users can change the file. It
// does not need a GPU, so it only warns about profiles that no known GPU model supports. It returns an error if the
// file cannot be read.
func CheckFile(path string) ([]Fault, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return []Fault{syntaxFault(err)}, nil
	}
	var root yaml.Node
	if len(doc.Content) > 0 {
		root = *doc.Content[0]
	}
	if root.Kind != yaml.MappingNode && root.Kind != 0 && root.Tag != "!!null" {
		return []Fault{{Line: root.Line, Text: "not a mapping; each line must have the form `key: value`"}}, nil
	}
	var faults []Fault
	lines := map[string]int{}
	for k := 0; k+1 < len(root.Content); k += 2 {
		faults = append(faults, checkKey(root.Content[k], root.Content[k+1], lines)...)
	}
	if !slices.ContainsFunc(faults, func(f Fault) bool { return !f.Warning }) {
		faults = append(faults, checkTogether(path, lines)...)
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return a.Line - b.Line })
	return faults, nil
}

// Effective returns the settings that apply with the file at path, in the order of the documentation: for each key,
// except those that only the service other reads, a line of YAML with a comment that names the line of the file, or
// says that the value is the default. Its errors are those of Load.
func Effective(path string, other Services) ([]string, error) {
	_, v, err := read(path, os.Geteuid())
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if text, err := os.ReadFile(path); err == nil {
		yaml.Unmarshal(text, &doc) // read has accepted the file
	}
	at := map[string]int{}
	for _, root := range doc.Content {
		for k := 0; k+1 < len(root.Content); k += 2 {
			at[strings.ToLower(root.Content[k].Value)] = root.Content[k].Line
		}
	}
	var lines []string
	for _, k := range keys {
		if k.Restart == other {
			continue
		}
		value, err := json.Marshal(v.Get(k.Name)) // JSON is YAML on one line
		if err != nil {
			return nil, err
		}
		source := strings.TrimSuffix("default: "+k.Unset, ": ")
		if n := at[k.Name]; n > 0 {
			source = fmt.Sprintf("%s:%d", path, n)
		}
		lines = append(lines, fmt.Sprintf("%-45s # %s", k.Name+": "+string(value), source))
	}
	return lines, nil
}

// checkKey checks one key and its value, using the defaults for the other keys. The argument lines maps each earlier
// key to its line number. Its keys are in lower case, because viper ignores the case of keys.
func checkKey(key, value *yaml.Node, lines map[string]int) []Fault {
	name := strings.ToLower(key.Value)
	if before := lines[name]; before > 0 {
		return []Fault{{Line: key.Line, Text: fmt.Sprintf("%s: line %d already sets this key", name, before)}}
	}
	lines[name] = key.Line
	if _, ok := defaults()[name]; !ok {
		return []Fault{{Line: key.Line, Text: oneLine(unknownKey(key.Value))}}
	}
	if err := checkValue(name, value); err != nil {
		return []Fault{{Line: key.Line, Text: oneLine(err)}}
	}
	if name == "profiles" || name == "default_profile" {
		return unknownProfiles(name, value)
	}
	return nil
}

func checkValue(name string, value *yaml.Node) error {
	var decoded any
	if err := value.Decode(&decoded); err != nil {
		return err
	}
	text, err := yaml.Marshal(map[string]any{name: decoded})
	if err != nil {
		return err
	}
	v := viper.New()
	v.SetConfigType("yaml")
	if err := v.ReadConfig(bytes.NewReader(text)); err != nil {
		return err
	}
	c, err := parse(v)
	if err == nil {
		_, err = c.FullGPUs()
	}
	return err
}

// checkTogether checks the rules that involve several keys, and the rules of Load for the file as a whole.
func checkTogether(path string, lines map[string]int) []Fault {
	v := viper.New()
	v.SetConfigFile(path)
	v.SetConfigType("yaml")
	err := v.ReadInConfig()
	if err == nil {
		_, err = parse(v)
	}
	if err == nil {
		return nil
	}
	text := oneLine(err)
	key, _, _ := strings.Cut(text, ":")
	return []Fault{{Line: lines[key], Text: text}}
}

// unknownProfiles returns a warning for each profile that is not in Caelum's table of GPU models. A newer driver may
// still support it.
func unknownProfiles(name string, value *yaml.Node) []Fault {
	names := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		names = value.Content
	}
	var faults []Fault
	for _, n := range names {
		if n.Value == "" || n.Value == mig.Full || mig.IsFraction(n.Value) {
			continue
		}
		if !slices.ContainsFunc(mig.Models(), func(m *mig.Model) bool {
			return slices.ContainsFunc(m.Profiles, func(p mig.Profile) bool { return p.Name == n.Value })
		}) {
			faults = append(faults, Fault{n.Line, fmt.Sprintf("%s: no GPU model that Caelum knows has the profile %q; "+
				"`caelum profiles` on a node lists its profiles", name, n.Value), true})
		}
	}
	return faults
}

// yamlLine matches the line number in an error of the YAML parser.
var yamlLine = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?`)

func syntaxFault(err error) Fault {
	text := oneLine(err)
	number := yamlLine.FindStringSubmatch(text)
	if number == nil {
		return Fault{Text: text}
	}
	line, _ := strconv.Atoi(number[1])
	return Fault{Line: line, Text: "not valid YAML: " + strings.TrimPrefix(text, number[0])}
}
