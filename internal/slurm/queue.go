package slurm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// squeueArgs makes squeue print each array task separately and include hidden partitions, but omit the header and the
// jobs of other clusters.
var squeueArgs = []string{"-h", "-r", "-a", "--local"}

// queue returns the jobs that squeue lists for the given arguments.
func (c *Client) queue(ctx context.Context, args ...string) ([]Job, error) {
	return c.queueInto(ctx, nil, args...)
}

// queueInto is like queue, but appends the jobs to an empty list.
func (c *Client) queueInto(ctx context.Context, jobs []Job, args ...string) (_ []Job, err error) {
	sep := newSeparator()
	err = c.stream(
		ctx,
		[]string{"SQUEUE_FORMAT2=" + jobFormat(sep)},
		func(out io.Reader) error {
			jobs, err = appendJobs(jobs, out, sep)
			return err
		},
		c.squeue,
		append(squeueArgs[:len(squeueArgs):len(squeueArgs)], args...)...)
	return jobs, err
}

// excludedNodes returns the nodes that jobs exclude, by job id. squeue 22.05 prints them only with the -o option. The
// argument owners maps the jobs' ids to their users.
func (c *Client) excludedNodes(
	ctx context.Context, owners map[uint32]uint32, args ...string,
) (map[uint32]exclusion, error) {
	sep := newSeparator()
	var byID map[uint32]exclusion
	err := c.stream(
		ctx,
		[]string{"SQUEUE_FORMAT=" + excludeFormat(sep)},
		func(out io.Reader) (err error) {
			byID, err = parseExclusions(out, sep, owners)
			return err
		},
		c.squeue,
		append(squeueArgs[:len(squeueArgs):len(squeueArgs)], args...)...)
	return byID, err
}

func (e exclusion) addTo(j *Job) {
	j.ExcNodes = e.excluded
	if j.Problem == "" {
		j.Problem = e.problem
	}
}

// Queue holds all jobs in slurmctld's list at one point in time.
type Queue struct {
	// Waiting lists the pending jobs in descending order of priority.
	Waiting []Waiting
	// All lists all jobs, including those in Waiting and finished ones that slurmctld has not removed yet (MinJobAge).
	// Allocated is not set, and ExcNodes only for pending jobs, because only [Client.Job] reads them.
	All []Job
	// Licenses is the number of free licences of each kind. It is read only if a waiting job requests licences.
	Licenses map[string]int
}

// On returns the jobs that may be on a node: running, starting, suspended or completing. For a completing job,
// slurmctld shows only the nodes that are still completing, so the result does not include jobs that are completing
// only on other nodes.
func (q Queue) On(node string) []Job { return On(q.All, node) }

// On is like [Queue.On], but takes the jobs as an argument.
func On(jobs []Job, node string) (on []Job) {
	for _, j := range jobs {
		if j.Present() && slices.Contains(j.Nodes, node) {
			on = append(on, j)
		}
	}
	return on
}

// Queue reads all jobs with a single request. If any jobs are waiting, it makes a second request for their excluded
// nodes and, if one of them requests licences, a third request. Errors: ErrUnreachable.
func (c *Client) Queue(ctx context.Context) (q Queue, err error) {
	if q.All, err = c.Jobs(ctx); err != nil {
		return q, err
	}
	if q.Waiting, err = c.complete(ctx, toWaiting(q.All)); err != nil {
		return q, err
	}
	q.Licenses, err = c.licenses(ctx, q.Waiting)
	return q, err
}

// Lister is a source of the nodes and the queue, such as *Client.
type Lister interface {
	Nodes(ctx context.Context) ([]Node, error)
	Queue(ctx context.Context) (Queue, error)
}

// List reads the nodes and then the jobs, so that a job that starts between the two requests appears as running in the
// list of jobs. If they were read in the opposite order, only GresUsed would show it, and the agent would offer its
// slice again.
func List(ctx context.Context, from Lister) (nodes []Node, q Queue, err error) {
	if nodes, err = from.Nodes(ctx); err == nil {
		q, err = from.Queue(ctx)
	}
	return nodes, q, err
}

// Jobs returns the same jobs as [Queue].All, but makes only one request. Errors: ErrUnreachable.
func (c *Client) Jobs(ctx context.Context) ([]Job, error) {
	// A list that grows needs up to twice its memory, so it begins with the capacity that the last one needed.
	jobs, err := c.queueInto(ctx, make([]Job, 0, c.listed.Load()), "-t", "all")
	c.listed.Store(int64(len(jobs)))
	return jobs, err
}

// JobsOn returns the jobs that may be on a node (see [Queue.On]) with one request. If slurmctld hides other users'
// jobs, the result contains only the caller's jobs. Errors: ErrUnreachable.
func (c *Client) JobsOn(ctx context.Context, node string) ([]Job, error) {
	if err := checkNode(node); err != nil {
		return nil, err
	}
	jobs, err := c.queue(ctx, "-w", node)
	return On(jobs, node), err
}

// AllOn is like JobsOn, but also returns the jobs that have ended and that slurmctld has not removed yet (MinJobAge).
func (c *Client) AllOn(ctx context.Context, node string) ([]Job, error) {
	if err := checkNode(node); err != nil {
		return nil, err
	}
	jobs, err := c.queue(ctx, "-t", "all", "-w", node)
	return slices.DeleteFunc(jobs, func(j Job) bool { return !slices.Contains(j.Nodes, node) }), err
}

// Script returns the script of a batch job that slurmctld has not removed yet. The caller must be root, SlurmUser, an
// operator or the job's owner. Errors: ErrNoJob, ErrUnreachable.
func (c *Client) Script(ctx context.Context, id uint32) (string, error) {
	text, err := c.run(ctx, nil, c.scontrol, "write", "batch_script", strconv.FormatUint(uint64(id), 10), "-")
	if err == nil && text == "" { // scontrol 22.05 exits with 0 even if slurmctld refuses
		err = fmt.Errorf("the script of job %d: %w", id, ErrNoJob)
	}
	return text, err
}

// Processes returns the jobs of the processes that the slurmstepds of a node track, by process id. It must run as root
// on that node, and asks each slurmstepd rather than slurmctld.
func (c *Client) Processes(ctx context.Context, node string) (map[int]uint32, error) {
	if err := checkNode(node); err != nil {
		return nil, err
	}
	out, err := c.run(ctx, nil, c.scontrol, "listpids", "*", node)
	if err != nil {
		return nil, err
	}
	jobs := map[int]uint32{}
	for line := range strings.Lines(out) {
		var pid int
		var job uint32
		if n, _ := fmt.Sscan(line, &pid, &job); n == 2 && pid > 0 { // the first line has the names of the columns
			jobs[pid] = job
		}
	}
	return jobs, nil
}

// complete sets the jobs' excluded nodes, which squeue 22.05 prints only with its other format option.
func (c *Client) complete(ctx context.Context, waiting []Waiting) ([]Waiting, error) {
	if len(waiting) == 0 {
		return nil, nil
	}
	owners := make(map[uint32]uint32, len(waiting))
	for k := range waiting {
		owners[waiting[k].ID] = waiting[k].UID
	}
	exclusions, err := c.excludedNodes(ctx, owners, "-t", waitingStates(waiting))
	if err != nil {
		return nil, err
	}
	kept := waiting[:0]
	for _, w := range waiting {
		// A job that is missing from the second output has started or ended since the first request.
		if e, ok := exclusions[w.ID]; ok {
			e.addTo(w.Job)
			kept = append(kept, w)
		}
	}
	return kept, nil
}

// waitingStates returns the states for squeue's -t option. PD does not select expedited jobs (_filter_job in
// squeue/print.c, 26.05.3), and releases before 25.11 do not accept the name EXPEDITING.
func waitingStates(waiting []Waiting) string {
	if slices.ContainsFunc(waiting, func(w Waiting) bool { return w.Expedited }) {
		return "PD," + expediting
	}
	return "PD"
}

// JobsOf reads a job with one request. For the id of an array, it returns all tasks. Errors: ErrNoJob, ErrUnreachable.
func (c *Client) JobsOf(ctx context.Context, id uint32) ([]Job, error) {
	return c.queue(ctx, "-t", "all", "-j", strconv.FormatUint(uint64(id), 10))
}

// record returns the job with the given id.
func (c *Client) record(ctx context.Context, id uint32) (Job, error) {
	jobs, err := c.JobsOf(ctx, id)
	if err != nil {
		return Job{}, err
	}
	i := slices.IndexFunc(jobs, func(j Job) bool { return j.ID == id })
	if i < 0 {
		return Job{}, fmt.Errorf("job %d: %w", id, ErrNoJob)
	}
	return jobs[i], nil
}

// jobTries is the maximum number of times that Job tries to read a job. It tries again if the job changed between the
// two requests.
const jobTries = 5

// Job reads a job with two requests. The second request reads Allocated if the job holds its nodes; otherwise, it reads
// ExcNodes. Errors: The error is ErrNoJob, ErrUnreachable, ErrChanging or ErrAmbiguous. If the error is ErrAmbiguous,
// Job still returns the job, but without Allocated.
func (c *Client) Job(ctx context.Context, id uint32) (Job, error) {
	for range jobTries {
		j, err := c.record(ctx, id)
		if err != nil {
			return Job{}, err
		}
		read := c.readExcluded
		if j.Holds() {
			read = c.readAllocated
		}
		err = read(ctx, &j)
		switch {
		case err == nil, errors.Is(err, ErrAmbiguous):
			return j, err
		case !errors.Is(err, ErrChanging):
			return Job{}, err
		}
	}
	return Job{}, fmt.Errorf("job %d: %w", id, ErrChanging)
}

// readAllocated sets j.Allocated. If slurmctld shows a different run from the one in j, it returns ErrChanging.
func (c *Client) readAllocated(ctx context.Context, j *Job) error {
	if c.show != "" {
		out, err := c.run(ctx, nil, c.show, "job", strconv.FormatUint(uint64(j.ID), 10))
		switch {
		case err == nil:
			return j.setAllocated(out)
		case errors.Is(err, ErrNoJob):
			return ErrChanging
		case !unusable(err) && exitCode(err) != unclearRecord:
			return err
		}
	}
	out, err := c.run(ctx, nil, c.scontrol, "-d", "show", "job", ref(*j))
	if errors.Is(err, ErrNoJob) {
		return ErrChanging
	}
	if err != nil {
		return err
	}
	if err = checkRun(out, *j); err == nil {
		j.Allocated, err = parseAllocation(out, j.Nodes)
	}
	if err != nil && !errors.Is(err, ErrChanging) {
		return fmt.Errorf("job %d: %w", j.ID, err)
	}
	return err
}

// ExcludedNodes returns the nodes that a job excludes, whatever its state, with one request. Errors: ErrNoJob,
// ErrUnreachable.
func (c *Client) ExcludedNodes(ctx context.Context, id uint32) ([]string, error) {
	exclusions, err := c.excludedNodes(ctx, nil, "-t", "all", "-j", strconv.FormatUint(uint64(id), 10))
	if err != nil {
		return nil, err
	}
	e, ok := exclusions[id]
	switch {
	case !ok:
		return nil, fmt.Errorf("job %d: %w", id, ErrNoJob)
	case e.problem != "":
		return nil, fmt.Errorf("job %d: %s", id, e.problem)
	}
	return e.excluded, nil
}

// readExcluded sets j.ExcNodes. It returns ErrChanging if the job's state has changed.
func (c *Client) readExcluded(ctx context.Context, j *Job) error {
	exclusions, err := c.excludedNodes(ctx, nil, "-t", "all", "-j", strconv.FormatUint(uint64(j.ID), 10))
	if err != nil {
		return err
	}
	e, ok := exclusions[j.ID]
	if !ok || e.state != j.State {
		return ErrChanging
	}
	e.addTo(j)
	return nil
}
