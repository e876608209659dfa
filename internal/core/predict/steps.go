package predict

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Steps maps a number in the arguments of a job's script to a profile. It is the content of an args line of the
// decision table.
type Steps struct {
	Position int    // of the number among the numbers of the arguments (Numbers), from 1
	UpTo     []Step // by ascending number; 1 to MaxSteps
	Beyond   string // the profile for larger numbers
}

// Step is the profile for numbers up to and including UpTo, as far as no smaller step has them.
type Step struct {
	UpTo    float64
	Profile string
}

// MaxSteps limits the steps of a line. A GPU model has fewer profiles that differ in memory.
const MaxSteps = 16

// errSteps is the error for text that is not the content of an args line.
var errSteps = errors.New("the text is not <position> <number>=<profile>... *=<profile>")

var (
	positionForm = regexp.MustCompile(`^[1-4]$`)
	stepForm     = regexp.MustCompile(`^([0-9]{1,12}(?:\.[0-9]{1,6})?)=([A-Za-z0-9][A-Za-z0-9.+-]*)$`)
	beyondForm   = regexp.MustCompile(`^\*=([A-Za-z0-9][A-Za-z0-9.+-]*)$`)
)

// Profile returns the profile for the numbers of a job's arguments. ok is false if the job has no number at the
// position.
func (s Steps) Profile(numbers []float64) (profile string, ok bool) {
	if len(numbers) < s.Position {
		return "", false
	}
	for _, step := range s.UpTo {
		if numbers[s.Position-1] <= step.UpTo {
			return step.Profile, true
		}
	}
	return s.Beyond, true
}

// String formats the steps for the decision table, for example "1 2000=1g.5gb 4500=2g.10gb *=7g.40gb".
func (s Steps) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", s.Position)
	for _, step := range s.UpTo {
		fmt.Fprintf(&b, " %s=%s", strconv.FormatFloat(step.UpTo, 'f', -1, 64), step.Profile)
	}
	fmt.Fprintf(&b, " *=%s", s.Beyond)
	return b.String()
}

// ParseSteps parses the words of an args line that follow the job key.
func ParseSteps(words []string) (Steps, error) {
	if len(words) < 3 || len(words) > MaxSteps+2 || !positionForm.MatchString(words[0]) {
		return Steps{}, errSteps
	}
	s := Steps{Position: int(words[0][0] - '0')}
	for _, w := range words[1 : len(words)-1] {
		m := stepForm.FindStringSubmatch(w)
		if m == nil {
			return Steps{}, errSteps
		}
		at, err := strconv.ParseFloat(m[1], 64)
		if n := len(s.UpTo); err != nil || n > 0 && cmp.Compare(at, s.UpTo[n-1].UpTo) <= 0 {
			return Steps{}, errSteps
		}
		s.UpTo = append(s.UpTo, Step{at, m[2]})
	}
	m := beyondForm.FindStringSubmatch(words[len(words)-1])
	if m == nil {
		return Steps{}, errSteps
	}
	s.Beyond = m[1]
	return s, nil
}
