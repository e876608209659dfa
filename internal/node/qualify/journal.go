package qualify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// entry is a line of the journal. A line opBegin has Boot, Files, Instances and Agent, and makes the lines before it
// void: what they announce has been undone.
type entry struct {
	N  int    `json:"n,omitempty"` // the number of the instance to which the line belongs
	Op string `json:"op"`

	Boot      string                `json:"boot,omitempty"`
	Files     []file                `json:"files,omitempty"`
	Instances map[string][]instance `json:"instances,omitempty"` // by the GPU's UUID
	Agent     bool                  `json:"agent,omitempty"`     // the run stops the agent

	GPU     string `json:"gpu,omitempty"` // UUID
	Profile int    `json:"profile"`
	Start   int    `json:"start"`
	GI      int    `json:"gi"`
	UUID    string `json:"uuid,omitempty"`
	Path    string `json:"path,omitempty"`
	Text    string `json:"text,omitempty"`

	Paths []string `json:"paths,omitempty"` // cgroups
}

// The operations in a journal.
const (
	opBegin   = "begin"
	opCreate  = "create"  // before the call; has GPU, Profile and Start
	opCreated = "created" // has GI
	opUUID    = "uuid"    // the compute instance exists
	opGone    = "gone"    // after the instance was destroyed, or the call created none
	opAccess  = "access"  // before a DeviceFileModify is changed; Text is the content to be written back
	opMode    = "mode"    // before MIG mode is switched off
	opModeOK  = "mode-ok" // after MIG mode is on again
	// opGroups comes before the cgroups of the run, with a limit on GPU, are created. Paths are the cgroups in whose
	// children the controller is enabled. opGroupsGone comes after their removal.
	opGroups     = "cgroups"
	opGroupsGone = "cgroups-gone"
)

// journal is the file that lets the next run undo what a killed run left. It is not synchronized with the disk, except
// before a mode switch: a killed process loses no data, and instances and device files do not survive a power failure.
type journal struct {
	mu   sync.Mutex
	file *os.File
	last int
}

// errRunning means that another run has the journal open.
var errRunning = errors.New("another caelumd qualify is running on this node; wait until it ends")

// openJournal opens and locks the journal, and returns the lines of an earlier run that did not finish.
func openJournal(dir string) (j *journal, old []entry, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "qualify.journal"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	// The run that had the lock may have ended and removed the file.
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil || !isAt(f) {
		return nil, nil, errRunning
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, nil, err
	}
	for line := range bytes.Lines(text) {
		var e entry
		if !bytes.HasSuffix(line, []byte("\n")) {
			// The run was killed while it wrote the line, so the call that the line announces was not made.
			err := f.Truncate(int64(len(text) - len(line)))
			if _, seekErr := f.Seek(0, io.SeekEnd); err != nil || seekErr != nil {
				return nil, nil, errors.Join(err, seekErr)
			}
			break
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, nil, fmt.Errorf("%s is damaged (%w); compare `nvidia-smi mig -lgi` with the "+
				"instances that you know, and remove the file", f.Name(), err)
		}
		if e.Op == opBegin {
			old = nil
		}
		old = append(old, e)
	}
	return &journal{file: f}, old, nil
}

// isAt reports whether an open file is still the one with its name.
func isAt(f *os.File) bool {
	own, err1 := f.Stat()
	at, err2 := os.Lstat(f.Name())
	return err1 == nil && err2 == nil && os.SameFile(own, at)
}

func (j *journal) write(e entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("couldn't write the journal: %w", err)
	}
	if e.Op == opMode {
		return j.file.Sync()
	}
	return nil
}

// creating announces the creation of an instance, and returns its number.
func (j *journal) creating(c *card, p profile, start int) (int, error) {
	n := j.number()
	return n, j.write(entry{N: n, Op: opCreate, GPU: c.uuid, Profile: int(p.info.Id), Start: start})
}

// number returns the number of the next instance.
func (j *journal) number() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	return j.last
}

// remove removes the file: nothing is left to be undone.
func (j *journal) remove() error { return os.Remove(j.file.Name()) }

// pending is an instance of an earlier run that may still exist.
type pending struct {
	entry
	created bool // GI is known
}

// left returns the instances in a journal that were not destroyed, in the order of their creation.
func left(old []entry) []pending {
	var all []pending
	at := map[int]int{}
	for _, e := range old {
		k, ok := at[e.N]
		switch {
		case e.Op == opCreate:
			at[e.N] = len(all)
			all = append(all, pending{entry: e})
		case !ok:
		case e.Op == opCreated:
			all[k].GI, all[k].created = e.GI, true
		case e.Op == opUUID:
			all[k].UUID = e.UUID
		case e.Op == opGone:
			all[k].Op = opGone
		}
	}
	var live []pending
	for _, p := range all {
		if p.Op != opGone {
			live = append(live, p)
		}
	}
	return live
}
