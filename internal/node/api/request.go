package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// maxRequest is the maximum size of a request body in bytes. A lease request for 256 slots takes about 1.5 KiB.
const maxRequest = 64 << 10

// maxSlots is the maximum number of slots in a lease file. The largest nodes have 112 slots.
const maxSlots = 256

// maxCount limits the restart count and slot indices. Slurm's own counters are 16 bits wide.
const maxCount = 1<<16 - 1

// maxSLUID limits the length of a job's SLUID in bytes. Slurm's have 14.
const maxSLUID = 32

// ValidSLUID reports whether the text consists of 1 to 32 letters, digits and underscores, so that it can be the name
// of a cgroup.
func ValidSLUID(text string) bool {
	for _, c := range []byte(text) {
		if !(c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_') {
			return false
		}
	}
	return len(text) > 0 && len(text) <= maxSLUID
}

func badRequest(message string) error { return &Error{http.StatusBadRequest, message} }

// readLeaseRequest parses a prolog's lease request. It ignores unknown keys, because the plugin may be newer than the
// agent during an upgrade, and an error would drain the node.
func readLeaseRequest(w http.ResponseWriter, r *http.Request) (LeaseRequest, error) {
	var req LeaseRequest
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	err := d.Decode(&req)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("unexpected data after the request")
		}
	}
	if err != nil {
		return req, badRequest("couldn't read the lease request: " + err.Error())
	}
	return req, req.check()
}

func (r LeaseRequest) check() error {
	if r.Restart < 0 || r.Restart > maxCount {
		return badRequest(
			fmt.Sprintf("couldn't read the lease request: the restart count %d is not between 0 and %d",
				r.Restart, maxCount),
		)
	}
	if len(r.Slots) == 0 || len(r.Slots) > maxSlots {
		return badRequest(
			fmt.Sprintf("couldn't read the lease request: the number of slots is %d, but must be between 1 and %d",
				len(r.Slots), maxSlots),
		)
	}
	if r.SLUID != "" && !ValidSLUID(r.SLUID) {
		return badRequest(fmt.Sprintf(
			"couldn't read the lease request: the SLUID %.40q is not 1 to %d letters, digits and underscores",
			r.SLUID, maxSLUID))
	}
	seen := map[int]bool{}
	for _, s := range r.Slots {
		if s < 0 || s > maxCount || seen[s] {
			return badRequest(fmt.Sprintf(
				"couldn't read the lease request: slot %d is not between 0 and %d, or occurs twice", s, maxCount))
		}
		seen[s] = true
	}
	return nil
}

func readRestart(r *http.Request) (int, error) {
	n, err := strconv.ParseUint(r.URL.Query().Get("restart"), 10, 16)
	if err != nil {
		return 0, badRequest("couldn't read the restart parameter: " + err.Error())
	}
	return int(n), nil
}

func readJob(r *http.Request) (uint32, error) {
	job, err := strconv.ParseUint(r.PathValue("id"), 10, 32)
	if err != nil || job == 0 {
		return 0, badRequest("couldn't read the job id: it must be a number greater than 0 and less than 4294967296")
	}
	return uint32(job), nil
}
