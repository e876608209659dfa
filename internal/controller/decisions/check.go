package decisions

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Fault is the reason why job_submit.lua rejects a table.
type Fault struct {
	Line int    `json:"line,omitempty"` // 0 if the fault concerns the entire table
	Text string `json:"text"`
}

// forms holds the forms of all lines after the first, by their first words.
var forms = map[string]string{
	"partition":    "partition NAME [PROFILE] [grow=off|oom|forecast]",
	"profile":      "profile NAME [MIB [MOST]]",
	"model":        "model TYPE PROFILE [UNITS]",
	"alias":        "alias TYPE PROFILE, once for each type",
	"shard":        "shard [TYPE:]COUNT PROFILE, once for each type and count",
	"per_gpu":      "per_gpu PARTITION CPUS MIB, once for each partition",
	"default":      "default PROFILE, once",
	"whole":        "whole PROFILE, once",
	"grow":         "grow off|oom|forecast, once",
	"max_nodes":    "max_nodes NUMBER, once",
	"max_cpus":     "max_cpus NUMBER",
	"bypass":       "bypass PARTITION|off, once",
	"size_message": "size_message on|off, once",
	"args":         "args USER_ID:KEY POSITION NUMBER=PROFILE... *=PROFILE, 1 to 16 numbers, once for each key",
	"key":          "key USER_ID:KEY PROFILE [SECONDS[-SECONDS] [PERCENT]], once for each key",
	"user":         "user USER_ID:FINGERPRINT PROFILE [SECONDS[-SECONDS] [PERCENT]], once for each fingerprint",
	"site":         "site FINGERPRINT PROFILE [SECONDS[-SECONDS] [PERCENT]], once for each fingerprint",
	"name":         "name USER_ID:HASH PROFILE [SECONDS[-SECONDS] [PERCENT]], once for each user and job name",
	"owner":        "owner USER_ID PROFILE [SECONDS[-SECONDS] [PERCENT]], once for each user",
}

// Check returns all faults of a table, in line order. The result is empty if and only if Parse and job_submit.lua
// accept the table.
func Check(text string) []Fault {
	if err := form(text); err != nil {
		return []Fault{{Text: err.Error()}}
	}
	r := newReader()
	var faults []Fault
	n := 0
	for line := range strings.Lines(text) {
		if n++; n > MaxLines {
			return append(faults, Fault{Text: fmt.Sprintf("the table has more than %d lines", MaxLines)})
		}
		if n > 1 && !r.read(n, line) {
			faults = append(faults, Fault{n, explain(line)})
		}
	}
	for _, p := range r.Profiles {
		delete(r.named, p.Name)
	}
	for profile, n := range r.named {
		faults = append(faults, Fault{n, fmt.Sprintf("the profile %q has no profile line", profile)})
	}
	if slices.Contains(r.Partitions, r.Bypass) {
		faults = append(faults, Fault{r.bypass, fmt.Sprintf("the partition %q also has a partition line: name a "+
			"partition without slices, or write bypass off", r.Bypass)})
	}
	if r.Default == "" {
		faults = append(faults, Fault{Text: "the default line is missing"})
	}
	slices.SortFunc(faults, func(a, b Fault) int { return a.Line - b.Line })
	return faults
}

// explain returns the reason why a line is invalid.
func explain(line string) string {
	text, _, _ := strings.Cut(line, "#")
	words := strings.FieldsFunc(text, blank)
	form, ok := forms[words[0]]
	switch {
	case blank(rune(line[0])):
		return "the line begins with a blank"
	case !ok:
		return fmt.Sprintf("no line may begin with %.40q; a line must begin with %s", words[0],
			strings.Join(slices.Sorted(maps.Keys(forms)), ", "))
	}
	return "the line must have the form " + form
}
