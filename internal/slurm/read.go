package slurm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"
)

var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// ValidNode reports whether a text can be the name of one node.
func ValidNode(name string) bool { return nodeName.MatchString(name) }

func checkNode(name string) error {
	if !ValidNode(name) {
		return fmt.Errorf("%w: %.80q is no node name", ErrNoNode, name)
	}
	return nil
}

// Node reads a node. ErrNoNode, ErrUnreachable.
func (c *Client) Node(ctx context.Context, name string) (Node, error) {
	if err := checkNode(name); err != nil {
		return Node{}, err
	}
	asked := time.Now()
	out, err := c.run(ctx, nil, c.scontrol, "-d", "show", "node", name)
	if err != nil {
		return Node{}, err
	}
	n, err := parseNode(out, name)
	n.Asked = asked
	return n, err
}

// Config reads slurmctld's configuration. ErrUnreachable.
func (c *Client) Config(ctx context.Context) (Config, error) {
	out, err := c.run(ctx, nil, c.scontrol, "show", "config")
	if err != nil {
		return Config{}, err
	}
	return parseConfig(out)
}

// squeueArgs: no header, each task of an array, hidden partitions too, and no other cluster of a federation.
var squeueArgs = []string{"-h", "-r", "-a", "--local"}

// queue lists jobs.
func (c *Client) queue(ctx context.Context, args ...string) ([]Job, error) {
	sep := newSeparator()
	out, err := c.run(
		ctx,
		[]string{"SQUEUE_FORMAT2=" + jobFormat(sep)},
		c.squeue,
		append(squeueArgs[:len(squeueArgs):len(squeueArgs)], args...)...)
	if err != nil {
		return nil, err
	}
	return parseJobs(out, sep)
}

// excludedNodes returns the excluded nodes of jobs, by job id. 22.05 shows them in squeue's -o format only.
func (c *Client) excludedNodes(ctx context.Context, args ...string) (map[uint32]exclusion, error) {
	sep := newSeparator()
	out, err := c.run(
		ctx,
		[]string{"SQUEUE_FORMAT=" + excludeFormat(sep)},
		c.squeue,
		append(squeueArgs[:len(squeueArgs):len(squeueArgs)], args...)...)
	if err != nil {
		return nil, err
	}
	list, err := parseExclusions(out, sep)
	if err != nil {
		return nil, err
	}
	byID := make(map[uint32]exclusion, len(list))
	for _, e := range list {
		byID[e.id] = e
	}
	return byID, nil
}

func (e exclusion) addTo(j *Job) {
	j.ExcNodes = e.excluded
	if j.Problem == "" {
		j.Problem = e.problem
	}
}

// Queue is all jobs at one moment.
type Queue struct {
	// Waiting are the pending jobs, highest priority first.
	Waiting []Waiting
	// All has those and every other, also those that are over and that slurmctld has not forgotten yet (MinJobAge).
	// What only [Client.Job] reads, ExcNodes and Allocated, is not filled in.
	All []Job
	// Licenses is how many of each of the cluster's licences no job has. It is read only while a job that waits asks
	// for any.
	Licenses map[string]int
}

// On lists the jobs that may be on a node: running, starting, suspended or completing. A job that runs on several nodes
// and is still completing elsewhere only is not listed: slurmctld shows a completing job's remaining nodes.
func (q Queue) On(node string) []Job { return On(q.All, node) }

// On does the same with a list of jobs.
func On(jobs []Job, node string) (on []Job) {
	for _, j := range jobs {
		if j.Present() && slices.Contains(j.Nodes, node) {
			on = append(on, j)
		}
	}
	return on
}

// Queue reads all jobs: one request, a second one while jobs wait, and a third one while one of these asks for
// licences. ErrUnreachable.
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

// Jobs reads all jobs with one request, as [Queue].All has them. ErrUnreachable.
func (c *Client) Jobs(ctx context.Context) ([]Job, error) { return c.queue(ctx, "-t", "all") }

// complete adds what 22.05 shows in another format only.
func (c *Client) complete(ctx context.Context, waiting []Waiting) ([]Waiting, error) {
	if len(waiting) == 0 {
		return nil, nil
	}
	exclusions, err := c.excludedNodes(ctx, "-t", "PD")
	if err != nil {
		return nil, err
	}
	kept := waiting[:0]
	for _, w := range waiting {
		// A job that is not there any more has started or gone.
		if e, ok := exclusions[w.ID]; ok {
			e.addTo(&w.Job)
			kept = append(kept, w)
		}
	}
	return kept, nil
}

// record finds the one job with this id. Asked for the id of an array, squeue lists all its tasks.
func (c *Client) record(ctx context.Context, id uint32) (Job, error) {
	jobs, err := c.queue(ctx, "-t", "all", "-j", strconv.FormatUint(uint64(id), 10))
	if err != nil {
		return Job{}, err
	}
	i := slices.IndexFunc(jobs, func(j Job) bool { return j.ID == id })
	if i < 0 {
		return Job{}, fmt.Errorf("job %d: %w", id, ErrNoJob)
	}
	return jobs[i], nil
}

// jobTries bounds how often Job reads a job that changes between two requests.
const jobTries = 5

// Job reads a job with two requests: with its allocation if it holds its nodes, else with ExcNodes. With ErrAmbiguous
// the Job is returned too, complete but for these. ErrNoJob, ErrUnreachable, ErrChanging.
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

// readAllocated adds to a job what each node gave it. ErrChanging: slurmctld's account is not of the run that j is of.
func (c *Client) readAllocated(ctx context.Context, j *Job) error {
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

// readExcluded adds to a job the nodes that it excludes. ErrChanging: it has another state meanwhile.
func (c *Client) readExcluded(ctx context.Context, j *Job) error {
	exclusions, err := c.excludedNodes(ctx, "-t", "all", "-j", strconv.FormatUint(uint64(j.ID), 10))
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
