package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Credentials creates and decodes credentials that only one user can decode. *Munge implements it.
type Credentials interface {
	// Encode returns a credential with the given payload, which only the given user can decode.
	Encode(payload []byte, uid uint32) (string, error)
	// Decode returns a credential's payload and the user ID of the process that created it.
	Decode(credential string) (payload []byte, uid uint32, err error)
}

// Munge uses the host's munged through the programs munge and unmunge. A session needs only one credential, so the
// cost of the processes (3 ms each) does not matter, and unlike a call of libmunge, a process can be ended if munged
// does not respond.
type Munge struct {
	Socket string // the path of munged's socket; if empty, munge's default

	mu     sync.Mutex
	err    error     // the last failure of munged
	resume time.Time // the time before which munged is not called again
}

const (
	mungeTimeout = time.Second     // time limit for a call
	mungePause   = 5 * time.Second // pause after munged did not respond
	// The programs exit with the error code of libmunge. With noSocket or noAnswer, munged is down or does not respond;
	// other codes can depend on the credential, which a user may have sent. munge considers a credential that it has
	// decoded before as replayed. A new receiver on the same host has to decode the credential again, and the time in a
	// datagram protects against replays.
	killed   = -1 // ExitCode's result for a process that was killed
	noSocket = 6
	noAnswer = 7
	replayed = 17
)

// Encode implements Credentials.
func (m *Munge) Encode(payload []byte, uid uint32) (string, error) {
	out, err := m.run(payload, "munge", "--zip=none", fmt.Sprint("--restrict-uid=", uid),
		fmt.Sprint("--ttl=", int(credentialTTL.Seconds())))
	return strings.TrimSpace(string(out)), err
}

// userID matches the metadata in the output of `unmunge --keys=UID`, such as "UID:   root (0)".
var userID = regexp.MustCompile(`^UID:.*\((\d+)\)$`)

// Decode implements Credentials.
func (m *Munge) Decode(credential string) (payload []byte, uid uint32, err error) {
	out, err := m.run([]byte(credential), "unmunge", "--keys=UID")
	if err != nil {
		return nil, 0, err
	}
	metadata, payload, _ := bytes.Cut(out, []byte("\n\n"))
	match := userID.FindSubmatch(metadata)
	if match == nil {
		return nil, 0, fmt.Errorf("couldn't find the user ID in unmunge's output %.*q", maxQuoted, metadata)
	}
	n, err := strconv.ParseUint(string(match[1]), 10, 32)
	return payload, uint32(n), err
}

func (m *Munge) run(input []byte, program string, args ...string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Now().Before(m.resume) {
		return nil, m.err
	}
	if m.Socket != "" {
		args = append(args, "--socket="+m.Socket)
	}
	ctx, cancel := context.WithTimeout(context.Background(), mungeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin, cmd.WaitDelay = bytes.NewReader(input), mungeTimeout
	out, err := cmd.Output()
	code := killed
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	switch {
	case err == nil:
		return out, nil
	case exit == nil:
		err = fmt.Errorf("couldn't run %s: %w", program, err)
	case code == replayed:
		return out, nil
	case ctx.Err() != nil:
		err = fmt.Errorf("%s did not end within %v; check munged", program, mungeTimeout)
	default:
		err = fmt.Errorf("%s failed: %.*s", program, maxQuoted, bytes.TrimSpace(exit.Stderr))
	}
	if code == killed || code == noSocket || code == noAnswer {
		m.err, m.resume = err, time.Now().Add(mungePause)
	}
	return nil, err
}
