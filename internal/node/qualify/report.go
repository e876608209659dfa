package qualify

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// Result is the outcome of the checks of one assumption.
type Result string

// The results of a check. A row differs if one check differs, and holds if at least one check holds and none differs.
const (
	Holds      Result = "holds"
	Differs    Result = "differs"
	NotChecked Result = "not checked"
)

// Row is the result for one assumption.
type Row struct {
	ID      string   `json:"id"`
	Text    string   `json:"assumption"`
	Result  Result   `json:"result"`
	Details []string `json:"details,omitempty"` // differences, or what was seen, or the reasons why nothing was checked
	Action  string   `json:"action,omitempty"`  // only if the result is Differs
	Blocks  bool     `json:"blocks,omitempty"`  // the node must not be used while the row differs
}

// maxDetails limits the details of a row: with eight GPUs, a difference can repeat for hundreds of placements.
const maxDetails = 5

// Report collects results. Its methods may be called concurrently.
type Report struct {
	Rows   []Row
	Record Record
	// Notes are lines about the GPUs and the run.
	Notes []string

	// without has the reason why the rows whose ids begin with a letter do not concern the node.
	without map[string]string

	mu                   sync.Mutex
	held, differ, reason map[string][]string
}

func newReport() *Report {
	return &Report{without: map[string]string{}, held: map[string][]string{}, differ: map[string][]string{},
		reason: map[string][]string{}}
}

func (r *Report) add(to map[string][]string, id, format string, args []any) {
	text := fmt.Sprintf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(to[id], text) && len(to[id]) < maxDetails {
		to[id] = append(to[id], text)
	}
}

func (r *Report) holds(id, format string, args ...any)   { r.add(r.held, id, format, args) }
func (r *Report) differs(id, format string, args ...any) { r.add(r.differ, id, format, args) }
func (r *Report) skip(id, format string, args ...any)    { r.add(r.reason, id, format, args) }

// check calls holds or differs.
func (r *Report) check(ok bool, id, format string, args ...any) {
	if ok {
		r.holds(id, format, args...)
	} else {
		r.differs(id, format, args...)
	}
}

func (r *Report) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// finish computes the rows.
func (r *Report) finish(readOnly bool) {
	for _, a := range assumptions {
		row := Row{ID: a.id, Text: a.text}
		switch {
		case len(r.differ[a.id]) > 0:
			row.Result, row.Details, row.Action, row.Blocks = Differs, r.differ[a.id], a.action, a.blocks
		case len(r.held[a.id]) > 0:
			row.Result, row.Details = Holds, r.held[a.id]
		case r.without[a.id[:1]] != "":
			row.Result, row.Details = NotChecked, []string{r.without[a.id[:1]]}
		case a.never != "":
			row.Result, row.Details = NotChecked, []string{a.never}
		case len(r.reason[a.id]) > 0:
			row.Result, row.Details = NotChecked, r.reason[a.id]
		case readOnly:
			row.Result, row.Details = NotChecked, []string{"--read-only"}
		default:
			row.Result, row.Details = NotChecked, []string{"no GPU allowed the check"}
		}
		r.Rows = append(r.Rows, row)
	}
	r.Record.Rows, r.Record.Verdict = r.Rows, r.Verdict()
}

// Usable reports whether Caelum may manage the node: no assumption differs that Caelum cannot do without.
func (r *Report) Usable() bool {
	return !slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Blocks })
}

// Verdict returns the last line of the output.
func (r *Report) Verdict() string {
	var bad, handled, open []string
	for k, row := range r.Rows {
		switch {
		case row.Blocks:
			bad = append(bad, row.ID)
		case row.Result == Differs:
			handled = append(handled, row.ID)
		case row.Result == NotChecked && assumptions[k].blocks && r.without[row.ID[:1]] == "":
			open = append(open, row.ID)
		}
	}
	switch {
	case len(bad) > 0:
		return "do not use Caelum on this node: " + strings.Join(bad, ", ") + " differ"
	case slices.Contains(open, "A8") && !r.checked("F3") || slices.Contains(open, "F3") && !r.checked("A8"):
		// no instance was created, and no memory limit was tested
		return "undecided: no check found a reason not to use Caelum, but " + strings.Join(open, ", ") +
			" were not checked"
	}
	text := "Caelum may be used on this node"
	if len(handled) > 0 {
		text += "; read the actions for " + strings.Join(handled, ", ")
	}
	if len(open) > 0 {
		text += "; not checked: " + strings.Join(open, ", ")
	}
	return text
}

// checked reports whether a row holds or differs.
func (r *Report) checked(id string) bool {
	return slices.ContainsFunc(r.Rows, func(row Row) bool { return row.ID == id && row.Result != NotChecked })
}

// Print writes the rows and the verdict as text.
func (r *Report) Print(w io.Writer) error {
	var b strings.Builder
	for _, note := range r.Notes {
		fmt.Fprintln(&b, note)
	}
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "%-4s %-11s  %s\n", row.ID, row.Result, row.Text)
		for _, text := range row.Details {
			fmt.Fprintf(&b, "%17s %s\n", "", text)
		}
		if row.Action != "" {
			fmt.Fprintf(&b, "%17s action: %s\n", "", row.Action)
		}
	}
	fmt.Fprintf(&b, "verdict: %s\n", r.Verdict())
	_, err := io.WriteString(w, b.String())
	return err
}
