package predict

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// KeyInput holds the properties of a job from which Key computes the job key. Two submissions with equal properties are
// runs of the same job. The slice and the GPU model are not among them, because a job's needs do not depend on them.
type KeyInput struct {
	UID     uint32
	Account string // the account in the request, or else the user's default account
	JobName string
	Script  string // empty for srun and salloc
	// Args holds the arguments of the script, without the script itself. They have no effect without a script, and if
	// there are more than maxArgs.
	Args []string

	GPUs        int // GPU slots on each node
	Nodes       int // at least 1
	Tasks       int // 0 if not requested
	CPUsPerTask int // 0 if not requested
}

// These constants limit the number of bytes of the name, the script, an argument and all arguments that are hashed, and
// the number of arguments (KEY.md in spank/submit).
const (
	keyNameBytes   = 256
	keyScriptBytes = 4096
	keyArgBytes    = 256
	keyArgsBytes   = 1024
	maxArgs        = 64
)

// MaxNumbers limits the numbers of a job's arguments.
const MaxNumbers = 4

// Key returns the job's key, which consists of 16 hexadecimal digits. spank/submit/KEY.md specifies every byte of the
// hash input. spank/submit/job_submit.lua computes the same key in slurmctld, and the same test vectors check both
// implementations.
func Key(in KeyInput) string {
	var m message
	m.text("caelum-key-1", keyNameBytes)
	m.text(strconv.FormatUint(uint64(in.UID), 10), keyNameBytes)
	m.text(lowerASCII(in.Account), keyNameBytes)
	m.text(in.JobName, keyNameBytes)
	m.text(in.Script, keyScriptBytes)
	m.numbers(in.GPUs, in.Nodes, in.Tasks, in.CPUsPerTask)
	if in.Script != "" && len(in.Args) > 0 && len(in.Args) <= maxArgs {
		var args message
		patterns, _ := split(in.Args)
		for _, p := range patterns {
			args.text(p, keyArgBytes)
		}
		m.text(args.String(), keyArgsBytes)
	}
	return m.hash()
}

// numberForm matches an argument that states a number: a number, one letter and a number as in -b64, or any text that
// ends with an equals sign and a number.
var numberForm = regexp.MustCompile(`(?s)^(|-[A-Za-z]|.*=)([0-9]{1,12}(?:\.[0-9]{1,6})?)$`)

// Numbers returns the numbers in the arguments of a script, as typed, up to MaxNumbers. The script itself is not one of
// the arguments.
func Numbers(args []string) []string {
	if len(args) > maxArgs {
		return nil
	}
	_, numbers := split(args)
	return numbers
}

// split returns the arguments with # instead of each of their numbers, and the numbers.
func split(args []string) (patterns, numbers []string) {
	for _, arg := range args {
		if m := numberForm.FindStringSubmatch(arg); m != nil && len(numbers) < MaxNumbers {
			numbers = append(numbers, m[2])
			arg = m[1] + "#"
		}
		patterns = append(patterns, arg)
	}
	return patterns, numbers
}

// Fingerprint returns the script fingerprint: 16 hexadecimal digits that depend on the job's script and size, but not
// on its user, account, name or CPUs. It is empty for a job without a script. KEY.md specifies both the key and the
// fingerprint.
func Fingerprint(in KeyInput) string {
	if in.Script == "" {
		return ""
	}
	var m message
	m.text("caelum-work-1", keyNameBytes)
	m.text(in.Script, keyScriptBytes)
	m.numbers(in.GPUs, in.Nodes, in.Tasks)
	return m.hash()
}

// NameHash returns 16 hexadecimal digits for a job name, which identify it in the decision table.
func NameHash(name string) string {
	var m message
	m.text("caelum-name-1", keyNameBytes)
	m.text(name, keyNameBytes)
	return m.hash()
}

// message is the input of a hash. Each field is encoded as a netstring (length, colon, bytes, comma).
type message struct{ strings.Builder }

func (m *message) text(s string, most int) {
	s = s[:min(len(s), most)]
	fmt.Fprintf(m, "%d:%s,", len(s), s)
}

func (m *message) numbers(all ...int) {
	for _, n := range all {
		m.text(strconv.Itoa(n), keyNameBytes)
	}
}

func (m *message) hash() string {
	// Lua 5.1 has only double-precision numbers. The bases are below 2^20, so every product is below 2^53 and thus
	// exact.
	const prime, base1, base2 = 4294967291, 1000003, 786433
	var h1, h2 uint64
	for _, c := range []byte(m.String()) {
		h1 = (h1*base1 + uint64(c)) % prime
		h2 = (h2*base2 + uint64(c)) % prime
	}
	return fmt.Sprintf("%08x%08x", h1, h2)
}

// lowerASCII is equivalent to Lua's string.lower in the C locale, in which slurmctld runs. strings.ToLower, by
// contrast, also changes non-ASCII letters.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
