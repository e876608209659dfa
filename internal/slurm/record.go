package slurm

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// field is a column of `squeue -O`, together with the function that stores its value in a Job.
type field struct {
	name string
	set  func(*Job, string) error
}

// Except for exclusive, all columns in jobFields exist in both 22.05 and 26.05. In 22.05, `squeue -O` has no column for
// excluded nodes (see excludeFormat).
var jobFields = []field{
	{"jobid", func(j *Job, s string) error { return id32(&j.ID, s) }},
	{"arrayjobid", func(j *Job, s string) error { return id32(&j.ArrayJob, s) }},
	{"arraytaskid", func(j *Job, s string) error { j.ArrayTask = orEmpty(s); return nil }},
	{"hetjobid", func(j *Job, s string) error { return id32(&j.HetJob, s) }},
	{"hetjobidset", func(j *Job, s string) (err error) { j.HetJobs, err = idSet(s); return err }},
	{"state", func(j *Job, s string) error { j.State, j.Expedited = jobState(s); return nil }},
	{"reason", func(j *Job, s string) error { j.Reason = s; return nil }},
	{"userid", func(j *Job, s string) error { return id32(&j.UID, s) }},
	{"username", func(j *Job, s string) error { j.User = orEmpty(s); return nil }},
	{"account", func(j *Job, s string) error { j.Account = orEmpty(s); return nil }},
	{"partition", func(j *Job, s string) error { j.Partition = s; return nil }},
	{"qos", func(j *Job, s string) error { j.QOS = orEmpty(s); return nil }},
	{"prioritylong", func(j *Job, s string) (err error) { j.Priority, err = strconv.ParseUint(s, 10, 64); return err }},
	{"restartcnt", func(j *Job, s string) error { return count(&j.Restarts, s) }},
	{"batchflag", func(j *Job, s string) error { return flag(&j.Batch, s) }},
	{"requeue", func(j *Job, s string) error { return flag(&j.Requeue, s) }},
	{"oversubscribe", func(j *Job, s string) error { j.Exclusive = s == "NO"; return nil }},
	{"exclusive", func(j *Job, s string) error { return j.exclusive(s) }}, // must follow oversubscribe
	{"timelimit", func(j *Job, s string) (err error) { j.TimeLimit, err = ParseLimit(s); return err }},
	{"mintime", func(j *Job, s string) error { j.TimeMin = timeMin(s); return nil }},
	{"deadline", func(j *Job, s string) error { j.Deadline = deadline(s); return nil }},
	{"submittime", func(j *Job, s string) (err error) { j.Submit, err = parseTime(s); return err }},
	{"eligibletime", func(j *Job, s string) (err error) { j.Eligible, err = parseTime(s); return err }},
	{"starttime", func(j *Job, s string) (err error) { j.Start, err = parseTime(s); return err }},
	{"endtime", func(j *Job, s string) (err error) { j.End, err = parseTime(s); return err }},
	{"nodelist", func(j *Job, s string) (err error) { j.Nodes, err = ExpandHosts(s); return err }},
	{"numnodes", func(j *Job, s string) error { return count(&j.NumNodes, s) }},
	{"numtasks", func(j *Job, s string) error { return count(&j.Tasks, s) }},
	{"reqnodes", func(j *Job, s string) (err error) { j.ReqNodes, err = usersHosts(s); return err }},
	{"feature", func(j *Job, s string) error { j.Features = ParseConstraint(s); return nil }},
	{"reservation", func(j *Job, s string) error { j.Reservation = orEmpty(s); return nil }},
	{"tres-per-node", func(j *Job, s string) (err error) { j.PerNode, err = requestGRES(s); return err }},
	{"tres-per-job", func(j *Job, s string) (err error) { j.PerJob, err = requestGRES(s); return err }},
	{"tres-per-task", func(j *Job, s string) (err error) { j.PerTask, err = requestGRES(s); return err }},
	{"tres-per-socket", func(j *Job, s string) (err error) { j.PerSocket, err = requestGRES(s); return err }},
	{"name", func(j *Job, s string) error { j.Name = orEmpty(s); return nil }},
	{"admin_comment", func(j *Job, s string) error { j.AdminComment = orEmpty(s); return nil }},
	{"comment", func(j *Job, s string) error { j.Comment = orEmpty(s); return nil }},
	{"numcpus", func(j *Job, s string) error { return count(&j.CPUs, s) }},
	{"lastschedeval", func(j *Job, s string) (err error) { j.LastSchedEval, err = parseTime(s); return err }},
	{"dependency", func(j *Job, s string) error { j.Dependency = orEmpty(strings.TrimRight(s, " ")); return nil }},
	{"nice", func(j *Job, s string) (err error) { j.Nice, err = parseNice(s); return err }},
	{"tres-alloc", func(j *Job, s string) (err error) { j.Memory, err = tresMemory(s); return err }},
	{"mincpus", func(j *Job, s string) (err error) { j.MinCPUs, err = parseUnits(s); return err }},
	{"mintmpdisk", func(j *Job, s string) (err error) { j.TmpDisk, err = mebibytes(s); return err }},
	{"sct", func(j *Job, s string) error { return j.topology(s) }},
	{"licenses", func(j *Job, s string) error { j.Licenses = orEmpty(s); return nil }},
	{"cpus-per-tres", func(j *Job, s string) error { j.CPUsPerGPU, j.CPUsPerTRES = perGPU(s), s; return nil }},
	{"mem-per-tres", func(j *Job, s string) error { j.MemoryPerGPU = perGPU(s); return nil }},
}

// jobState returns a job's state and whether the job is expedited. Since 25.11, squeue shows EXPEDITING instead of
// PENDING for a pending job that was submitted with --requeue=expedite and has been requeued because a node or an
// epilog failed. While the job is ending, its state is COMPLETING (job_state_string in slurm_protocol_defs.c, 26.05.3).
func jobState(s string) (state string, expedited bool) {
	if s == expediting {
		return "PENDING", true
	}
	return s, false
}

const expediting = "EXPEDITING"

// exclusive parses the `exclusive` column, which squeue has supported since 26.05. In 26.05, oversubscribe is NO for
// nearly every job. Earlier releases print a message and leave the column empty, but in these releases oversubscribe is
// NO only for jobs that request whole nodes (docs/slurm-releases.md, "Whole nodes").
func (j *Job) exclusive(s string) error {
	if !isNull(s) {
		j.Exclusive = s == "NODE" || s == "TOPO"
	}
	return nil
}

// perGPU returns the number of CPUs or MiB per GPU in a value such as "gpu:16" (from a partition's default),
// "gres:gpu:16" (22.05) or "gres/gpu:16" (24.11), or 0 if the value names no GPU.
func perGPU(s string) int {
	for item := range strings.SplitSeq(s, ",") {
		k := strings.LastIndexByte(item, ':')
		if k < 0 || !slices.Contains([]string{"gpu", "gres:gpu", "gres/gpu"}, item[:k]) {
			continue
		}
		if n, err := strconv.Atoi(item[k+1:]); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

// topology parses sockets per node, cores per socket and threads per core, for example "2:*:1".
func (j *Job) topology(s string) (err error) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return fmt.Errorf("%.40q does not have the form SOCKETS:CORES:THREADS", s)
	}
	for k, to := range []*int{&j.Sockets, &j.CoresPerSocket, &j.ThreadsPerCore} {
		if parts[k] != "*" && err == nil {
			*to, err = parseUnits(parts[k])
		}
	}
	return err
}

func id32(to *uint32, s string) error {
	if isNull(s) {
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 32)
	*to = uint32(n)
	return err
}

// maxHetJobs is the maximum number of ids that are parsed for one het job; Slurm allows 128 components
// (MAX_HET_JOB_COMPONENTS).
const maxHetJobs = 1024

// idSet parses a set of job ids such as "4-5,8".
func idSet(s string) (ids []uint32, err error) {
	for _, part := range list(s) {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		from, err1 := strconv.ParseUint(first, 10, 32)
		to, err2 := strconv.ParseUint(last, 10, 32)
		if err1 != nil || err2 != nil || to < from || to-from >= maxHetJobs || len(ids) >= maxHetJobs {
			return nil, fmt.Errorf("%.40q is not a set of at most %d job ids such as 4-5,8", s, maxHetJobs)
		}
		for id := from; id <= to; id++ {
			ids = append(ids, uint32(id))
		}
	}
	return ids, nil
}

func count(to *int, s string) (err error) {
	*to, err = parseCount32(s)
	return err
}

func flag(to *bool, s string) error {
	n, err := parseCount32(s)
	*to = n != 0
	return err
}

// newSeparator returns the separator that follows each field in the output of one call. It is random, so no user can
// have written it into a job beforehand. It does not begin with a digit, because squeue parses "name:0<separator>" with
// strtol, and it contains none of the characters , : %.
func newSeparator() string {
	var b [16]byte
	rand.Read(b[:]) // rand.Read never returns an error
	return "|" + hex.EncodeToString(b[:]) + "|"
}

// dependencyWidth is the number of characters of the dependency column that squeue prints, because only the presence of
// a dependency matters. A job can have a dependency of 64 kB, and `squeue -r` repeats it for each task of an array: 0.6
// MB in slurmctld became 578 MB of output. The width is large enough for "(null)".
const dependencyWidth = 16

// jobFormat returns the value of SQUEUE_FORMAT2 for jobFields. A width of 0 keeps squeue from truncating values.
func jobFormat(sep string) string {
	cols := make([]string, len(jobFields))
	for i, f := range jobFields {
		width := 0
		if f.name == "dependency" {
			width = dependencyWidth
		}
		cols[i] = f.name + ":" + strconv.Itoa(width) + sep
	}
	return strings.Join(cols, ",")
}

// eachRecord calls f for each record in a command's output. A record has n fields, each field ends with sep, and each
// record with a newline. The next call overwrites rec. A record may have maxRecord bytes.
func eachRecord(out io.Reader, sep string, n int, f func(rec [][]byte) error) error {
	end := []byte(sep)
	rec := make([][]byte, n)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxRecord)
	lines.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		at := 0
		for range n {
			i := bytes.Index(data[at:], end)
			if i < 0 && atEOF && len(data) > 0 {
				return 0, nil, errTruncated
			} else if i < 0 {
				return 0, nil, nil
			}
			at += i + len(end)
		}
		switch {
		case at < len(data) && data[at] != '\n':
			return 0, nil, errors.New("the records do not begin on separate lines")
		case at < len(data):
			return at + 1, data[:at], nil
		case atEOF:
			return 0, nil, errTruncated
		}
		return 0, nil, nil
	})
	for lines.Scan() {
		rest := lines.Bytes()
		for i := range rec {
			rec[i], rest, _ = bytes.Cut(rest, end)
		}
		if err := f(rec); err != nil {
			return err
		}
	}
	return lines.Err()
}

// maxRecord is the maximum length of a record. It is larger than the sum of the lengths that slurmctld accepts; the
// longest ones are those of the requested and the excluded nodes (64 kB).
const maxRecord = 1 << 20

// errTruncated is the error for output that ends within a record.
var errTruncated = errors.New("the output was truncated")

// longField is the length in bytes from which a field does not share memory with the other fields of its record, so
// that a job with a long hostlist does not keep the list's text.
const longField = 1 << 10

// detach returns a copy of a record.
func detach(rec [][]byte) []string {
	size := 0
	for _, f := range rec {
		if len(f) < longField {
			size += len(f)
		}
	}
	var all strings.Builder
	all.Grow(size)
	for _, f := range rec {
		if len(f) < longField {
			all.Write(f)
		}
	}
	text := all.String()
	list := make([]string, len(rec))
	for i, f := range rec {
		if len(f) >= longField {
			list[i] = string(f)
			continue
		}
		list[i], text = text[:len(f)], text[len(f):]
	}
	return list
}

// detachInto overwrites the fields of the record before with copies of a record's. Equal fields, which are most in a
// queue, share their memory.
func detachInto(own []string, rec [][]byte) {
	for i, f := range rec {
		if string(f) != own[i] {
			own[i] = string(f)
		}
	}
}

// appendJobs parses the output of squeue for jobFormat(sep), and appends the jobs to an empty list. If one of a job's
// fields cannot be parsed, it only sets the job's Problem, so that one user's malformed request does not hide all other
// jobs.
//
// Records with the same id become one Job: they are array tasks that slurmctld has not split off yet, but that `squeue
// -r` lists separately. Only the first of them is parsed; otherwise, an array of 100,000 tasks would take 332 MiB.
// Without -r, squeue would also join tasks that differ in their ids, holds and requests (22.05.8). With --array-unique,
// it would print the required records, but only 22.05 has this option.
func appendJobs(jobs []Job, out io.Reader, sep string) (_ []Job, err error) {
	at := map[string]int{} // by id
	tasks, names := map[int][]string{}, userNames{}
	own := make([]string, len(jobFields)) // of the last record
	err = eachRecord(out, sep, len(jobFields), func(rec [][]byte) error {
		if i, ok := at[string(rec[0])]; ok {
			if len(tasks[i]) == 0 {
				tasks[i] = []string{jobs[i].ArrayTask}
			}
			tasks[i] = append(tasks[i], orEmpty(string(rec[arrayTaskColumn])))
			return nil
		}
		shorten(rec)
		detachInto(own, rec)
		jobs = append(jobs, Job{})
		j := &jobs[len(jobs)-1]
		err := parseJob(j, own)
		if tooMany := names.add(j.UID, j.ReqNodes); tooMany != nil {
			j.ReqNodes = nil
			if j.State == "PENDING" { // an agent need not reread a job that has started
				j.Problem = tooMany.Error()
			}
		}
		at[own[0]] = len(jobs) - 1
		return err
	})
	if err != nil {
		return nil, unparsable("squeue", err)
	}
	for i, list := range tasks {
		jobs[i].ArrayTask = taskRanges(list)
	}
	return jobs, nil
}

// arrayTaskColumn is the index of arraytaskid in jobFields.
const arrayTaskColumn = 2

// nameColumn and commentColumn are the indices of the fields that can be long and that no decision needs entirely.
var nameColumn, commentColumn = column("name"), column("comment")

func column(name string) int {
	return slices.IndexFunc(jobFields, func(f field) bool { return f.name == name })
}

// maxText is the number of bytes of a job's name that are kept. A user can give 10,000 jobs names and comments of 1,000
// bytes.
const maxText = 128

// shorten reduces a long name to its beginning, and a long comment to Caelum's tags.
func shorten(rec [][]byte) {
	if name := rec[nameColumn]; len(name) > maxText {
		rec[nameColumn] = bytes.ToValidUTF8(name[:maxText], nil)
	}
	if comment := rec[commentColumn]; len(comment) > maxText {
		var kept [][]byte
		for word := range bytes.FieldsSeq(comment) {
			if bytes.HasPrefix(word, []byte("caelum:")) {
				kept = append(kept, word)
			}
		}
		rec[commentColumn] = bytes.Join(kept, []byte(" "))
	}
}

// parseJob parses one record.
func parseJob(j *Job, rec []string) error {
	for i, f := range jobFields {
		if err := f.set(j, rec[i]); err != nil {
			j.Problem = fmt.Sprintf("%s: %v", f.name, err)
		}
	}
	// If the job is not part of an array, squeue prints the job's own id here.
	if j.ArrayTask == "" {
		j.ArrayJob = 0
	}
	if j.ID == 0 {
		return fmt.Errorf("%.20q is not a job id", rec[0])
	}
	return nil
}

// taskRanges returns task indices in the form that scontrol accepts, for example "3-5,9".
func taskRanges(list []string) string {
	var nums []int
	for _, s := range list {
		n, err := strconv.Atoi(s)
		if err != nil {
			return strings.Join(list, ",")
		}
		nums = append(nums, n)
	}
	slices.Sort(nums)
	var parts []string
	for i := 0; i < len(nums); {
		k := i
		for k+1 < len(nums) && nums[k+1] <= nums[k]+1 {
			k++
		}
		part := strconv.Itoa(nums[i])
		if nums[k] > nums[i] {
			part += "-" + strconv.Itoa(nums[k])
		}
		parts = append(parts, part)
		i = k + 1
	}
	return strings.Join(parts, ",")
}

// exclusion holds the nodes that a job excludes and the job's state at the time of the request.
type exclusion struct {
	id       uint32
	excluded []string
	state    string
	problem  string
}

// maxUsersHosts is the maximum length of a hostlist that a user wrote. slurmctld accepts 64 kB.
const maxUsersHosts = 16 << 10

// usersHosts is like ExpandHosts, but for a hostlist that a user wrote. Each name occurs only once in the result.
func usersHosts(s string) ([]string, error) {
	if len(s) > maxUsersHosts {
		return nil, fmt.Errorf("the hostlist %.80q has more than %d kB", s, maxUsersHosts>>10)
	}
	hosts, err := ExpandHosts(s)
	var once []string
	seen := make(map[string]bool, len(hosts))
	for _, name := range hosts {
		if !seen[name] {
			seen[name] = true
			once = append(once, strings.Clone(name)) // a name without a range is a part of s
		}
	}
	return once, err
}

// maxUsersNames is the maximum number of names in the hostlists of one user's jobs in a listing. A name takes about 32
// bytes, and a plan compares it with the names of all nodes.
const maxUsersNames = 1 << 18

// userNames is the number of names in the hostlists of each user's jobs.
type userNames map[uint32]int

// add adds the names of a hostlist, or returns an error if the user has too many.
func (u userNames) add(uid uint32, hosts []string) error {
	if len(hosts) > maxUsersNames-u[uid] {
		return fmt.Errorf("the jobs of user %d name more than %d nodes in total", uid, maxUsersNames)
	}
	u[uid] += len(hosts)
	return nil
}

// excludeFormat returns the SQUEUE_FORMAT for the job id, the excluded nodes and the job state in its long form.
func excludeFormat(sep string) string {
	return "%A" + sep + "%x" + sep + "%T" + sep
}

// parseExclusions parses the output of squeue for excludeFormat(sep), by job id. Array tasks with the same id have one
// exclusion. owners maps the jobs' ids to their users.
func parseExclusions(out io.Reader, sep string, owners map[uint32]uint32) (map[uint32]exclusion, error) {
	exclusions, names := make(map[uint32]exclusion, len(owners)), userNames{}
	own := make([]string, 3) // of the last record
	err := eachRecord(out, sep, len(own), func(rec [][]byte) (err error) {
		detachInto(own, rec)
		var e exclusion
		e.state, _ = jobState(own[2])
		if err := id32(&e.id, own[0]); err != nil {
			return fmt.Errorf("job id: %w", err)
		}
		if _, seen := exclusions[e.id]; seen {
			return nil
		}
		if e.excluded, err = usersHosts(own[1]); err == nil {
			err = names.add(owners[e.id], e.excluded)
		}
		if err != nil {
			e.excluded, e.problem = nil, fmt.Sprintf("excluded nodes: %v", err)
		}
		exclusions[e.id] = e
		return nil
	})
	if err != nil {
		return nil, unparsable("squeue", err)
	}
	return exclusions, nil
}
