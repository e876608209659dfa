package repo

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"caelum/internal/core/predict"
	"caelum/internal/trust"
)

// Observed is the JSON object of a run that `caelumd observe` recorded on a node that Caelum does not manage. Profile
// is the profile of a static MIG device or, for a whole GPU, the model's largest profile. Slices is the number of
// devices that the run used. Util is -1 unless the GPU has counters (GPM) and no other job used the device. Samples is
// 0 if the usage is unknown.
type Observed struct {
	Line
	Partition string `json:"partition,omitempty"`
	Submit    int64  `json:"submit"`          // when the job became eligible, in Unix seconds
	Limit     int64  `json:"limit,omitempty"` // the time limit in seconds; 0: none
	// Nodes is the number of nodes of the job, and GPUs the number of GPUs that it requested on each node.
	Nodes int `json:"nodes"`
	GPUs  int `json:"gpus"`
	// GPUUtil is the mean fraction of time for which a program ran on the GPU, from 0 to 1, while the job was its only
	// user (nvmlUtilization_t), or -1.
	GPUUtil float64          `json:"gpu_util"`
	Devices []ObservedDevice `json:"devices,omitempty"`
}

// ObservedDevice is a GPU or a static MIG device that a run used.
type ObservedDevice struct {
	GPU     int     `json:"gpu"`
	UUID    string  `json:"uuid"`
	Profile string  `json:"profile"`
	PeakMiB float64 `json:"peak_mib"`
}

// EachRun calls f for each line of an export or of a file of `caelumd observe`. It stops at the first error, which
// includes the line number.
func EachRun(from io.Reader, f func(Observed) error) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	n := 1
	for ; lines.Scan(); n++ {
		run, err := parseLine(lines.Bytes())
		if err == nil {
			err = f(run)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d: %w", n, err)
	}
	return nil
}

// OpenRuns opens a file for EachRun. It returns an error if users other than root and the caller can change the file.
// It accepts /dev/null and the caller's own descriptors (/dev/stdin, /dev/fd/63), as with standard input.
func OpenRuns(path string) (*os.File, error) {
	if path == "/dev/null" || path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/") {
		return os.Open(path)
	}
	path, err := trust.Path(path, os.Geteuid())
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

func parseLine(text []byte) (run Observed, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&run); err != nil {
		return run, fmt.Errorf("not a run in the format of `caelum repo export` or `caelumd observe`: %w", err)
	}
	if d.More() {
		return run, errors.New("not a run in the format of `caelum repo export` or `caelumd observe`: there is more " +
			"text after the object")
	}
	if _, err := fromSummary(predict.Run(run.Line)); err != nil {
		return run, err
	}
	if run.Seconds > maxSeconds || run.Start > maxSeconds || run.Submit < 0 || run.Submit > run.Start ||
		run.Limit < 0 || run.Limit > maxSeconds || run.GPUUtil < -1 || run.GPUUtil > 1 ||
		max(run.Nodes, run.GPUs, run.Slices) > MaxCount || min(run.Nodes, run.GPUs, run.Slices) < 0 {
		return run, fmt.Errorf("the run of job %d has an invalid time, utilisation or number of GPUs", run.Job)
	}
	return run, nil
}

// maxSeconds limits all times in a file, in seconds. It is 30,000 years.
const maxSeconds = 1e12

// MaxCount is the maximum of Observed's Nodes, GPUs and Slices. It is also the maximum of Slices in a run's summary.
const MaxCount = 1<<16 - 1

// maxObserved is the size in bytes at which a file of observed runs is set aside as <path>.1, which replaces an earlier
// one. It holds about 100,000 runs.
const maxObserved = 64 << 20

// ObservedFile is a file to which runs are appended. Only its owner can read it.
type ObservedFile struct {
	path string
	f    *os.File
	size int64
	most int64
}

// OpenObserved opens or creates the file at path for one process. It removes a line that a crash left incomplete.
func OpenObserved(path string) (*ObservedFile, error) {
	if err := trust.Directory(path); err != nil {
		return nil, err
	}
	o := &ObservedFile{path: path, most: maxObserved}
	return o, o.open()
}

func (o *ObservedFile) open() error {
	f, err := os.OpenFile(o.path, os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is not a regular file", o.path)
	case syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil:
		err = fmt.Errorf("%s is in use by another caelumd observe; specify another file with --output", o.path)
	default:
		err = errors.Join(f.Chmod(0o600), f.Chown(os.Geteuid(), os.Getegid()))
	}
	if err == nil {
		o.size, err = completeLines(f, info.Size())
	}
	if err != nil {
		f.Close()
		return err
	}
	o.f = f
	return nil
}

// completeLines truncates a file after its last complete line and returns the file's size.
func completeLines(f *os.File, size int64) (int64, error) {
	tail, first := make([]byte, min(size, maxLine)), []byte("{")
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if _, err := f.ReadAt(first, 0); err != nil && !errors.Is(err, io.EOF) || first[0] != '{' {
		return 0, fmt.Errorf("%s does not contain observed runs; specify another file with --output", f.Name())
	}
	size -= int64(len(tail) - bytes.LastIndexByte(tail, '\n') - 1)
	return size, f.Truncate(size)
}

// Append appends a run with a single write. It returns an error for a run that EachRun would refuse, because that run
// would make the whole file unusable.
func (o *ObservedFile) Append(run Observed) error {
	text, err := json.Marshal(run)
	if err != nil {
		return err
	}
	if _, err := parseLine(text); err != nil || len(text) >= maxLine {
		return cmp.Or(err, errors.New("the line is too long"))
	}
	if o.size+int64(len(text)) >= o.most {
		if err := os.Rename(o.path, o.path+".1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		o.f.Close()
		if err := o.open(); err != nil {
			return err
		}
	}
	n, err := o.f.Write(append(text, '\n'))
	if err != nil && n > 0 { // the disk is full
		return errors.Join(err, o.f.Truncate(o.size))
	}
	o.size += int64(n)
	return err
}

// Close closes the file.
func (o *ObservedFile) Close() error { return o.f.Close() }
