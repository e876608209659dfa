//go:build e2e

package e2emixed

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"caelum/internal/node/api"
	"caelum/internal/slurm"
)

// upgrade is an upgrade of a whole cluster while jobs are running and waiting.
type upgrade struct {
	*site
	running []running
	relay   []relayed         // the jobs that each hold a whole GPU, oldest first; the last job waits for the first
	srun    <-chan error      // the result of an srun on the login node that runs during the whole upgrade
	runs    map[string]string // the profile of each job that has completed, by the job's name for sacct
	relays  int
}

// running is a job that runs during the whole upgrade. slice maps each node to its slice there.
type running struct {
	ref     string // the name for sacct, for example 12, 12_1 or 12+0
	profile string
	id      string // the name for Caelum, which is always a number
	slice   map[string]api.Slice
}

type relayed struct{ id, name string }

// TestUpgrade upgrades slurmdbd, slurmctld, the nodes and the login node, in this order. After each step, every running
// job must have its slices, waiting and new jobs must start on slices, and sacct must show the jobs.
func TestUpgrade(t *testing.T) {
	onEach(t, func(s *site) {
		u := &upgrade{site: s, runs: map[string]string{}}
		u.begin()
		waiting := u.waitingJobs()
		u.check("the start")

		u.withoutDaemon("dbd", "slurmdbd")
		u.check("the upgrade of slurmdbd")
		u.withoutDaemon(controller, "slurmctld")
		u.do(u.RestartUnit("watcher"))
		for _, node := range s.Nodes {
			s.registered(node, s.old)
		}
		u.check("the upgrade of slurmctld")
		for _, node := range s.Nodes {
			u.node(node)
			u.check("the upgrade of " + node)
		}
		s.do(s.Upgrade("login"))
		u.check("the upgrade of the login node")
		s.twoNodes("--gres=mig:1g.5gb:1")

		u.end(waiting)
		u.summaries()
	})
}

// begin starts the jobs that run during the whole upgrade, and the first jobs of the relay. The latter start first, so
// that the other jobs' slices are on the other GPUs.
func (u *upgrade) begin() {
	for _, node := range u.Nodes {
		u.nextOfRelay("-w", node)
	}
	u.Running(u.relay[0].id, u.relay[1].id)
	for _, node := range u.Nodes {
		u.keep("", "2g.10gb", "-w", node)
	}
	u.keep("", "1g.5gb", "-N2")
	u.keep("_1", "1g.5gb", "--array=1-2%1")

	het := u.Submit("./hold keep", "-w", "n1", "--gres=mig:1g.5gb:1", ":", "-w", "n2", "--gres=mig:1g.5gb:1")
	for _, component := range []string{"+0", "+1"} {
		u.Within("job "+het+component+" runs", func() bool { return strings.HasPrefix(u.place(het+component), "R ") })
		u.add(het+component, "1g.5gb")
	}
	requeued := u.Submit("./hold keep", "--requeue", "-w", "n2", "--gres=mig:1g.5gb:1")
	u.Running(requeued)
	u.Must("", user, "scontrol", "requeue", requeued)
	u.Within("job "+requeued+" runs again", func() bool {
		return strings.Contains(u.Must("", "root", "scontrol", "show", "job", requeued), " Restarts=1 ") &&
			u.Lives(requeued) == "RUNNING"
	})
	u.add(requeued, "1g.5gb")
	u.startSrun()
	u.nextOfRelay()
}

// startSrun starts an srun on the login node. Its job runs during the whole upgrade.
func (u *upgrade) startSrun() {
	ended := make(chan error, 1)
	u.srun = ended
	go func() {
		args := []string{"srun", "-J", "interactive", "--gres=mig:1g.5gb:1", "./hold", "keep"}
		_, stderr, err := u.Exec(u.t.Context(), user, args...)
		if err != nil {
			err = fmt.Errorf("%w: %s", err, stderr)
		}
		ended <- err
	}()
	u.Within("the job of srun runs", func() bool {
		id, state, _ := strings.Cut(u.Must("", "root", "squeue", "-h", "-n", "interactive", "-o", "%i %T"), " ")
		if state == "RUNNING" {
			u.add(id, "1g.5gb")
		}
		return state == "RUNNING"
	})
}

// keep starts a job that runs during the whole upgrade. suffix is the array task or empty.
func (u *upgrade) keep(suffix, profile string, options ...string) {
	u.t.Helper()
	id := u.Submit("./hold keep", append(options, "--gres=mig:"+profile+":1")...)
	u.Within("job "+id+suffix+" runs", func() bool { return strings.HasPrefix(u.place(id+suffix), "R ") })
	u.add(id+suffix, profile)
}

// place returns the state, the numeric id and the nodes of a job or array task.
func (u *upgrade) place(ref string) string {
	u.t.Helper()
	for line := range strings.Lines(u.Must("", "root", "squeue", "-h", "-r", "-o", "%i %t %A %N")) {
		if name, rest, _ := strings.Cut(strings.TrimSpace(line), " "); name == ref {
			return rest
		}
	}
	return ""
}

func (u *upgrade) add(ref, profile string) {
	u.t.Helper()
	words := strings.Fields(u.place(ref))
	if len(words) != 3 {
		u.t.Fatalf("squeue shows job %s as %q", ref, words)
	}
	nodes, err := slurm.ExpandHosts(words[2])
	u.do(err)
	r := running{ref: ref, id: words[1], profile: profile, slice: map[string]api.Slice{}}
	for _, node := range nodes {
		r.slice[node] = u.Slice(node, r.id)
	}
	u.running = append(u.running, r)
}

// nextOfRelay submits a job that needs a whole GPU.
func (u *upgrade) nextOfRelay(options ...string) {
	u.t.Helper()
	u.relays++
	name := fmt.Sprint("relay", u.relays)
	id := u.Submit("./hold "+name, append(options, "--gres=mig:7g.40gb:1")...)
	u.relay = append(u.relay, relayed{id, name})
}

// passOn ends the oldest job of the relay, upon which the waiting job must start, and submits the next waiting job.
// Every second job names the node of the job that it waits for.
func (u *upgrade) passOn() {
	u.t.Helper()
	first, last := u.relay[0], u.relay[len(u.relay)-1]
	if state := u.State(last.id); state != "PENDING" {
		u.t.Errorf("job %s is %s, and no GPU is free", last.id, state)
	}
	u.End(first.name)
	u.completed(first.id, "7g.40gb")
	u.Running(last.id)
	words := strings.Fields(u.place(last.id))
	u.Slice(words[len(words)-1], last.id)
	u.relay = u.relay[1:]
	if u.relays%2 == 0 {
		u.nextOfRelay()
		return
	}
	words = strings.Fields(u.place(u.relay[0].id))
	u.nextOfRelay("-w", words[len(words)-1])
}

// completed waits until a job has completed, and records the job for the check of the accounting.
func (u *upgrade) completed(id, profile string) {
	u.t.Helper()
	u.Completed(id)
	u.runs[id] = profile
}

// waitingJobs submits jobs that are not allowed to start before the end of the upgrade.
func (u *upgrade) waitingJobs() []string {
	const gres = "--gres=mig:1g.5gb:1"
	return []string{
		u.Submit(show, "--hold", gres),
		u.Submit(show, "--begin=now+3600", "-w", "n1", gres),
		u.Submit(show, "--dependency=afterok:"+u.running[0].id, gres),
	}
}

// check checks the running jobs, and runs new jobs. A step starts with the srun of its own node.
func (u *upgrade) check(after string) {
	u.t.Helper()
	for _, r := range u.running {
		if place := u.place(r.ref); !strings.HasPrefix(place, "R ") {
			u.t.Errorf("after %s, squeue shows job %s as %q", after, r.ref, place)
		}
		for node, slice := range r.slice {
			if now := u.Slice(node, r.id); now != slice {
				u.t.Errorf("after %s, job %s holds %+v on %s, want %+v", after, r.ref, now, node, slice)
			}
		}
		u.recorded(r.ref, "RUNNING", r.profile, len(r.slice))
	}
	for i, node := range u.Nodes {
		if got, want := u.stepDevices(node, u.running[i].id), u.running[i].slice[node].UUID; got != want {
			u.t.Errorf("after %s, a step of job %s has the slice %s, want %s", after, u.running[i].id, got, want)
		}
		id := u.Submit("srun printenv CUDA_VISIBLE_DEVICES", "-w", node, "--gres=mig:1g.5gb:1")
		u.hadSlice(id)
	}
	u.hadSlice(u.Submit("printenv CUDA_VISIBLE_DEVICES", "-N2", "--gres=mig:1g.5gb:1"))
	direct := u.Must("", user, "srun", "-Q", "--gres=mig:1g.5gb:1", "printenv", "CUDA_VISIBLE_DEVICES")
	if !strings.HasPrefix(direct, "MIG-") {
		u.t.Errorf("after %s, srun on the login node got the device %q", after, direct)
	}
	u.passOn()
	u.NoneDrained()
	for _, node := range u.Nodes {
		u.healthy(node, "agent", "instances", "release", "node", "used", "profiles", "plugin")
	}
	u.healthy(controller, "release", "decision table")
}

func (u *upgrade) hadSlice(id string) {
	u.t.Helper()
	u.completed(id, "1g.5gb")
	if out := u.output(id); !strings.HasPrefix(out, "MIG-") {
		u.t.Errorf("job %s has no slice:\n%s", id, out)
	}
}

// recorded waits until sacct shows a job with the given state and profile.
func (u *upgrade) recorded(ref, state, profile string, slices int) {
	u.t.Helper()
	tres := fmt.Sprintf(",gres/mig:%s=%d,", profile, slices)
	u.Within("sacct shows job "+ref+" as "+state+" with "+tres, func() bool {
		out := u.Must("", "root", "sacct", "-nPX", "-j", ref, "-o", "JobID,State,AllocTRES")
		for line := range strings.Lines(out) {
			w := strings.Split(strings.TrimSpace(line), "|")
			if len(w) == 3 && w[0] == ref && w[1] == state && strings.Contains(","+w[2]+",", tres) {
				return true
			}
		}
		return false
	})
}

// withoutDaemon upgrades the host of a daemon. One job ends while the daemon is stopped.
func (u *upgrade) withoutDaemon(host, unit string) {
	u.t.Helper()
	id := u.Submit("./hold "+unit, "--gres=mig:1g.5gb:1")
	u.Running(id)
	u.replace(host, unit, func() {
		u.End(unit)
		u.Within("the script of job "+id+" ends", func() bool {
			_, _, err := u.ExecNode(u.t.Context(), "n1", "root", "pgrep", "-f", "^/bin/bash ./hold "+unit+"$")
			return err != nil
		})
	})
	u.completed(id, "1g.5gb")
}

// node upgrades a node. One job ends while no slurmd is running, and the new slurmd must release its slice.
func (u *upgrade) node(node string) {
	u.t.Helper()
	ends := u.Submit("./hold ends-"+node, "-w", node, "--gres=mig:1g.5gb:1")
	u.Running(ends)
	u.do(u.StopUnit("slurmd-" + node))
	u.End("ends-" + node)
	u.Within("job "+ends+" has ended on a node without slurmd", func() bool { return u.State(ends) == "COMPLETING" })
	u.do(u.Upgrade(node))
	u.pluginRefused(node)
	u.do(u.StartUnit("slurmd-" + node))
	u.registered(node, u.fresh)
	u.completed(ends, "1g.5gb")
	u.do(u.RestartUnit("agent-" + node))
}

// end ends every job, and lets the jobs that waited during the whole upgrade start.
func (u *upgrade) end(waiting []string) {
	u.Must("", user, "scontrol", "release", waiting[0])
	u.Must("", user, "scontrol", "update", "job="+waiting[1], "StartTime=now")
	u.End("keep")
	if err := <-u.srun; err != nil {
		u.t.Errorf("srun on the login node ended with %v", err)
	}
	for _, r := range u.relay {
		u.End(r.name)
		u.completed(r.id, "7g.40gb")
	}
	for _, id := range waiting {
		u.completed(id, "1g.5gb")
		u.showed(id, 1)
	}
	for _, r := range u.running {
		u.recorded(r.ref, "COMPLETED", r.profile, len(r.slice))
		u.runs[r.ref] = r.profile
		if array, first := strings.CutSuffix(r.ref, "_1"); first {
			u.recorded(array+"_2", "COMPLETED", r.profile, 1)
			u.runs[array+"_2"] = r.profile
		}
	}
}

// summaries waits until every job's record contains its summary, and checks that a host can read all runs. If an
// agent's attempt fails, it tries again after pauses of up to 80 s.
func (u *upgrade) summaries() {
	missing := func() (list []string) {
		out := u.Must("", "root", "sacct", "-nPX", "-S", "now-1hour", "-o", "JobID,DBIndex,State,AdminComment")
		for line := range strings.Lines(out) {
			ref, _, _ := strings.Cut(line, "|")
			if u.runs[ref] != "" && !strings.Contains(line, "caelum:run=") {
				list = append(list, strings.TrimSpace(line))
			}
		}
		return list
	}
	for end := time.Now().Add(2 * time.Minute); len(missing()) > 0 && time.Now().Before(end); {
		time.Sleep(time.Second)
	}
	if list := missing(); len(list) > 0 {
		u.t.Errorf("these records contain no summary:\n%s", strings.Join(list, "\n"))
	}
	var synced struct{ Runs, New int }
	u.do(json.Unmarshal([]byte(u.Must(controller, "root", "caelum", "repo", "sync", "--json")), &synced))
	if synced.New < len(u.runs) {
		u.t.Errorf("caelum repo sync read %+v, want at least %d runs", synced, len(u.runs))
	}
}
