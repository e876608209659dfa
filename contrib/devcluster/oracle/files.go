package oracle

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
)

// Read reads a run from a directory that contains the following files. Files marked with * are optional.
//
//	run              lines "node NAME BOARD GPUS [full]" and "zone NAME", slurmctld's time zone (default: the local
//	                 zone)
//	NODE.agent       the agent's log
//	NODE.emulator    the emulator's log
//	NODE.final *     lines "GPU PROFILE START STATE": the instances of `caelum status` at the end
//	slurmctld        slurmctld's log
//	sacct            `sacct -a -D -X -n -P -o` SacctFields, with SLURM_TIME_FORMAT=%s
//	looks *          the output of SnapshotScript
//	seen *           lines "ran job=ID node=NODE uuid=MIG-..." and, for the rights on /dev/nvidiaN,
//	                 "file job=ID node=NODE at=NS gpu=N owner=UID mode=OCTAL user=UID" from the output of the jobs
func Read(dir fs.FS) (Run, error) {
	run := Run{}
	zone := time.Local
	text, err := fs.ReadFile(dir, "run")
	if err != nil {
		return run, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		switch {
		case (len(f) == 4 || len(f) == 5 && f[4] == fullProfile) && f[0] == "node":
			gpus, err := strconv.Atoi(f[3])
			if err != nil {
				return run, fmt.Errorf("run: %w", err)
			}
			n, err := readNode(dir, Node{Name: f[1], Model: f[2], GPUs: gpus, Full: len(f) == 5})
			if err != nil {
				return run, err
			}
			run.Nodes = append(run.Nodes, n)
		case len(f) == 2 && f[0] == "zone":
			zone, err = time.LoadLocation(f[1])
		default:
			err = fmt.Errorf("run: %q", line)
		}
		if err != nil {
			return run, err
		}
	}
	if err := readSlurm(dir, &run, zone); err != nil {
		return run, err
	}
	return run, readSeen(dir, &run)
}

func readNode(dir fs.FS, n Node) (Node, error) {
	text, err := fs.ReadFile(dir, n.Name+".agent")
	if err != nil {
		return n, err
	}
	if n.Journal, err = ReadJournal(bytes.NewReader(text)); err != nil {
		return n, fmt.Errorf("node %s: %w", n.Name, err)
	}
	if text, err = fs.ReadFile(dir, n.Name+".emulator"); err != nil {
		return n, err
	}
	if n.Hardware, err = ReadHardware(bytes.NewReader(text)); err != nil {
		return n, fmt.Errorf("node %s: %w", n.Name, err)
	}
	text, err = fs.ReadFile(dir, n.Name+".final")
	if errors.Is(err, fs.ErrNotExist) {
		return n, nil
	}
	n.Final = []Final{}
	for line := range strings.Lines(string(text)) {
		var f Final
		if _, err := fmt.Sscan(line, &f.GPU, &f.Profile, &f.Start, &f.State); err != nil {
			return n, fmt.Errorf("%s.final: %w in %q", n.Name, err, line)
		}
		n.Final = append(n.Final, f)
	}
	return n, err
}

func readSlurm(dir fs.FS, run *Run, zone *time.Location) error {
	text, err := fs.ReadFile(dir, "slurmctld")
	if err != nil {
		return err
	}
	logged, err := ReadSlurmctldLog(bytes.NewReader(text), zone)
	if err != nil {
		return err
	}
	run.Sets, run.Submits = logged.Sets, logged.Submits
	if text, err = fs.ReadFile(dir, "sacct"); err != nil {
		return err
	}
	records, err := ReadAccounting(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if run.Starts, err = Account(logged.Starts, records); err != nil {
		return err
	}
	text, err = fs.ReadFile(dir, "looks")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	run.Snapshots, err = ReadSnapshots(bytes.NewReader(text))
	return err
}

func readSeen(dir fs.FS, run *Run) error {
	text, err := fs.ReadFile(dir, "seen")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	s := bufio.NewScanner(bytes.NewReader(text))
	for s.Scan() {
		var seen Seen
		var file File
		if n, _ := fmt.Sscanf(s.Text(), "file job=%d node=%s at=%d gpu=%d owner=%d mode=%s user=%d",
			&file.Job, &file.Node, &file.At, &file.GPU, &file.Owner, &file.Mode, &file.User); n == 7 {
			run.Files = append(run.Files, file)
			continue
		}
		words := strings.NewReplacer("job=", "", "node=", "", "uuid=", "").Replace(s.Text())
		if _, err := fmt.Sscanf(words, "ran %d %s %s", &seen.Job, &seen.Node, &seen.UUID); err != nil {
			return fmt.Errorf("seen: %w in %q", err, s.Text())
		}
		run.Seen = append(run.Seen, seen)
	}
	return errors.Join(err, s.Err())
}
