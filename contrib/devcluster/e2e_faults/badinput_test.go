//go:build e2e

package e2efaults

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
	"caelum/internal/node/api"
)

// TestBadInput checks the effects of bad input while a job is running. Users submit invalid requests. The test damages
// the configuration, the decision table, the ledger and the lease file, as an administrator can do by mistake. It also
// fills the disks. Every error must name a remedy, the remedy must work, and the job must keep its slice until it ends.
func TestBadInput(t *testing.T) {
	s := start(t, cluster.Options{Nodes: 2, GPUs: 1, Model: "A100-40GB,A30-24GB"})
	keep := s.Submit("./hold keep", "--gres=mig:2g.10gb:1", "--job-name=keep")
	s.Running(keep)
	slice := s.Slice("n1", keep)
	for _, part := range []struct {
		name string
		run  func(*site, string)
	}{
		{"requests", badRequests}, {"decision table", badTable}, {"names", badNames}, {"socket", badCallers},
		{"lease file", badLeaseFile},
		{"full disks", fullDisks}, {"configuration", badConfiguration}, {"ledger", badLedger},
	} {
		t.Run(part.name, func(t *testing.T) {
			in := *s
			in.t = t
			part.run(&in, keep)
			if state := in.State(keep); state != "RUNNING" {
				t.Fatalf("the running job ended as %s", state)
			}
			if now := in.Slice("n1", keep); now.UUID != slice.UUID || now.Slot != slice.Slot ||
				now.Start != slice.Start {
				t.Errorf("the running job held %+v before, and holds %+v now", slice, now)
			}
			in.NoneDrained()
		})
	}
	s.End("keep")
	s.Completed(keep)
	s.NoneDrained()
}

// badRequests submits requests for unknown profiles, for a profile that only another GPU model has, and for strings
// that are not profiles.
func badRequests(s *site, _ string) {
	for _, c := range []struct{ options, says string }{
		{"--gres=mig:nonsense:1", "the MIG profile nonsense does not exist; the profiles are 1g.5gb,"},
		{"--gres=mig:1g.24gb:1", "the MIG profile 1g.24gb does not exist"},
		{"--gres=mig:closed:1", "the MIG profile closed does not exist"},
		{"--gres=mig:1g.5gb:-1", ""},
		{"--gres=mig:1g.5gb:99999999999999999999", ""},
		{"--gres=mig:1g.5gb:2,gpu:1", "names 2 slices and 1 GPU per node"},
		{"--gres=gpu:1 --mig=9g.99gb", "--mig: the MIG profile 9g.99gb does not exist"},
		{"--gres=gpu:1 --mig=$(id)", "--mig: couldn't read '$(id)': specify a profile such as 1g.5gb, auto, or off"},
		{"--gres=gpu:1 --mig-mem=$(id)", "--mig-mem: couldn't read '$(id)': specify the memory of a slice, as in 8G"},
		{"--gres=gpu:1 --mig=" + strings.Repeat("x", 5000), "--mig: couldn't read"},
		{"-p plain --gres=gpu:1,mig:nonsense:1", ""}, // Caelum does not manage the plain partition
	} {
		_, stderr, err := s.Exec(
			s.t.Context(),
			user,
			append(append([]string{"sbatch"}, strings.Fields(c.options)...), "--wrap", "true")...)
		if err == nil || !strings.Contains(stderr, c.says) {
			s.t.Errorf("sbatch %.80s: %v, %s", c.options, err, stderr)
		}
	}
	// Only the second node's GPU model has the 2g.12gb profile. A job that requests it must run on the second node, and
	// is held if it names the first.
	a30 := s.Submit("cuda-process --exclusive --seconds 0", "--gres=mig:2g.12gb:1")
	never := s.Submit("true", "--gres=mig:2g.12gb:1", "-w", "n1")
	s.Completed(a30)
	if on := s.Must("", "root", "squeue", "-h", "-t", "all", "-j", a30, "-o", "%N"); on != "n2" {
		s.t.Errorf("the job with the A30's profile ran on %s", on)
	}
	if why := s.Must("", "root", "squeue", "-h", "-j", never, "-o", "%T %r"); why != "PENDING JobHeldUser" {
		s.t.Errorf("the job that names the node without the profile is %s, want PENDING JobHeldUser", why)
	}
	s.Must("", user, "scancel", never)
}

// table overwrites the decision table in place, as some editors do. Caelum's own programs rename a new file.
func (s *site) table(text string) {
	s.t.Helper()
	cmd := s.Command(s.t.Context(), "", "root", "sh", "-c", "cat > /etc/caelum/decisions")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
}

// submits runs sbatch --hold for a job with a GPU, and returns the job's GRES or the error.
func (s *site) submits() string {
	s.t.Helper()
	out, stderr, err := s.Exec(s.t.Context(), user, "sbatch", "--parsable", "--hold", "--gres=gpu:1", "--wrap", "true")
	if err != nil {
		return stderr
	}
	id := strings.TrimSpace(out)
	given := clustertest.TresPerNode(s.Must("", "root", "squeue", "-h", "-j", id, "-O", "tres-per-node:200"))
	s.Must("", user, "scancel", id)
	return given
}

func badTable(s *site, _ string) {
	good := s.Must("", "root", "cat", "/etc/caelum/decisions") + "\n"
	small := regexp.MustCompile(`default \S+`).ReplaceAllString(good, "default 1g.5gb")
	generation := func(n int, text string) string {
		return regexp.MustCompile(`^caelum-decisions 1 \d+`).
			ReplaceAllString(text, fmt.Sprint("caelum-decisions 1 ", n))
	}
	given := func(what, profile string) {
		s.t.Helper()
		if got := s.submits(); !strings.HasSuffix(got, "gres/mig:"+profile+":1") {
			s.t.Errorf("%s: %s", what, got)
		}
	}
	s.table(generation(100, small))
	given("a new table", "1g.5gb")
	for i, damaged := range []string{
		generation(101, good)[:len(good)/2], "", "\x7fELF\x02\x01\x01\x00",
		generation(102, strings.Replace(good, "default ", "default 9g.99gb#", 1)),
		strings.ReplaceAll(generation(103, good), "\n", "\r\n"),
		generation(104, good) + strings.Repeat("# x\n", 300000), "caelum-decisions 9 105\n",
	} {
		s.table(damaged)
		given(fmt.Sprint("damage ", i), "1g.5gb")
	}
	s.Must("", "root", "rm", "/etc/caelum/decisions")
	given("text that is not a table", "1g.5gb")
	log, _ := s.Log("slurmctld")
	// Two consecutive tables among the eight damaged ones have the same error, which slurmctld logs only once.
	if n := strings.Count(log, "the last valid table remains in use"); n != 7 {
		s.t.Errorf("slurmctld logged %d of 7 errors in the table", n)
	}
	// If the table is damaged when slurmctld starts, job_submit.lua has no table, and rejects only jobs with GPUs. The
	// repaired table may have the same generation as the damaged one.
	s.table(generation(106, small)[:len(small)-9])
	if err := s.RestartUnit("slurmctld"); err != nil {
		s.t.Fatal(err)
	}
	if got := s.submits(); !strings.Contains(
		got,
		"refused until slurmctld can read /etc/caelum/decisions; please tell your administrator",
	) {
		s.t.Errorf("without a table, sbatch printed: %s", got)
	}
	s.Completed(s.Submit("true", "-p", "plain"))
	s.table(generation(106, small))
	given("whole again", "1g.5gb")
	s.table(generation(107, good))
}

// badNames checks that the names that users choose reach terminals and logs only as plain text.
func badNames(s *site, _ string) {
	const forged = "x\x1b]0;title\x07\x1b[2J\xc2\x9b31m\r\n" + `{"level":"error","msg":"forged","job":1}` +
		"\ntime=\"2026\" level=error msg=forged\nerror: caelum: prolog: forged"
	name := forged + strings.Repeat("%s%n", 50)
	id := s.Submit("./hold named", "--gres=mig:1g.5gb:1", "--job-name="+name, "--comment="+name)
	s.Running(id)
	s.Slice("n1", id)
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"job", id}, {"job", id, "--json"}} {
		out := s.Must("n1", stranger, append([]string{"caelum"}, args...)...)
		for _, r := range out {
			if r != '\n' && (r < ' ' || r >= 0x7f && r < 0xa0) {
				s.t.Fatalf("caelum %v prints %q: %q", args, r, out)
			}
		}
		if strings.Contains(out, "\nerror: ") || strings.Contains(out, "\ntime=") {
			s.t.Errorf("caelum %v prints lines from the user's name: %s", args, out)
		}
	}
	s.End("named")
	s.Completed(id)
	// The name has 64 KiB. Slurm's commands may reject it, or slurmctld may truncate it. In both cases, the next job
	// must run.
	s.Exec(
		s.t.Context(),
		user,
		"sbatch",
		"--gres=mig:1g.5gb:1",
		"--job-name="+strings.Repeat("n", 64<<10),
		"--wrap",
		"true",
	)
	s.Completed(s.Submit("true", "--gres=mig:1g.5gb:1"))
	for _, unit := range []string{"agent-n1", "agent-n2"} {
		log, err := s.Log(unit)
		if err != nil {
			s.t.Fatal(err)
		}
		for line := range strings.Lines(log) {
			if strings.HasPrefix(line, "time=") || strings.HasPrefix(line, "error:") ||
				strings.HasPrefix(line, `{"level":"error","msg":"forged"`) ||
				strings.ContainsRune(line, 0x1b) {
				s.t.Errorf("the log of %s contains a line from the user's name: %q", unit, line)
			}
		}
	}
}

// callers sends 300 requests to end another user's lease. It also opens 3000 connections, and sends half a header on
// each.
const callers = `ulimit -n 4096; exec perl -MIO::Socket::UNIX -e '
	$SIG{PIPE} = "IGNORE"; $| = 1;
	sub call { IO::Socket::UNIX->new(Peer => "/run/caelum/caelumd.sock") }
	for (1..300) {
		my $c = call() or next;
		print $c "DELETE /v1/jobs/$ARGV[0]/lease?restart=9 HTTP/1.1\r\nHost: c\r\n\r\n"; $c->flush;
		my $answer = <$c>; $codes{(split / /, $answer // "- cut")[1]}++;
	}
	push @held, grep { $_ } map { my $c = call(); print $c "POST /v1/jobs/1/lease HTTP/1.1\r\nX-a" if $c; $c } 1..3000;
	print join(" ", map { "$_=$codes{$_}" } sort keys %codes), " held=", scalar(@held), "\n";
	while (1) {
		my @new = map { my $c = call(); print $c "POST" if $c; $c } 1..50;
		select undef, undef, undef, 0.05; push @more, @new; splice @more, 0, 400 if @more > 400
	}' "$0"`

// badCallers checks that a user who floods the socket does not delay prologs, and causes only one log line.
func badCallers(s *site, keep string) {
	cmd := s.Command(s.t.Context(), "n1", stranger, "bash", "-c", callers, keep)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() {
		cmd.Process.Signal(os.Interrupt)
		s.Try("n1", "pkill", "-u", stranger, "perl")
		cmd.Wait() // the error only means that the test stopped the command
	}()
	var line [200]byte
	n, err := out.Read(line[:])
	if said := string(line[:n]); err != nil || !regexp.MustCompile(`^403=\d+ 429=\d+ held=3000`).MatchString(said) {
		s.t.Fatalf("the program callers printed %q, %v", said, err)
	}
	var ids []string
	for range 4 {
		ids = append(ids, s.Submit("cuda-process --exclusive --seconds 0", "--gres=mig:1g.5gb:1"))
	}
	s.Completed(ids...)
	log, _ := s.Log("agent-n1")
	if n := strings.Count(log, "lease change refused: caller is not root"); n != 1 {
		s.t.Errorf("the log has %d lines about 300 refused requests, want 1", n)
	}
}

// badLeaseFile damages the lease file of a running job. The job's next step must get an error. If root removes the
// damaged file and restarts the agent, the agent must rewrite the lease file.
func badLeaseFile(s *site, keep string) {
	path := "/run/caelum/jobs/" + keep
	step := func() string {
		out, stderr, _ := s.Exec(
			s.t.Context(),
			user,
			"srun",
			"--jobid="+keep,
			"--overlap",
			"printenv",
			"CUDA_VISIBLE_DEVICES",
		)
		return out + stderr
	}
	want := s.Slice("n1", keep).UUID
	if got := step(); !strings.HasPrefix(got, want) {
		s.t.Fatalf("a step of the job has CUDA_VISIBLE_DEVICES=%s", got)
	}
	s.Must("n1", "root", "truncate", "-s", "40", path)
	if got := step(); !strings.Contains(got, "caelum: task: ") || !strings.Contains(got, path) ||
		strings.Contains(got, want) {
		s.t.Errorf("with half a lease file, a step printed: %s", got)
	}
	s.Must("n1", "root", "rm", path)
	if err := s.RestartUnit("agent-n1"); err != nil {
		s.t.Fatal(err)
	}
	if got := step(); !strings.HasPrefix(got, want) {
		s.t.Errorf("after the remedy, a step has CUDA_VISIBLE_DEVICES=%s", got)
	}
}

// fullDisks checks that the prolog waits while a disk is full, and that the job starts when the disk has free space
// again.
func fullDisks(s *site, _ string) {
	waits := func(where, says string) string {
		s.t.Helper()
		id := s.Submit("cuda-process --exclusive --seconds 0", "--gres=mig:1g.10gb:1")
		s.Within("slurmctld has started the job", func() bool { return s.Lives(id) != "PENDING" })
		s.Within("a lease fails because the disk at "+where+" is full", func() bool {
			answer := s.Try(
				"n1",
				"perl",
				"-MIO::Socket::UNIX",
				"-e",
				`my $c = IO::Socket::UNIX->new(Peer => "/run/caelum/caelumd.sock");
				my $b = "{\"uid\":20001,\"slots\":[0]}";
				print $c "POST /v1/jobs/$ARGV[0]/lease HTTP/1.1\r\nHost: c\r\nConnection: close\r\n";
				print $c "Content-Length: " . length($b) . "\r\n\r\n$b"; print <$c>`,
				id,
			)
			return strings.Contains(answer, "503") && strings.Contains(answer, "no space left on device") &&
				strings.Contains(answer, says)
		})
		if state := s.Lives(id); state == "PENDING" || state == "COMPLETED" {
			s.t.Errorf("the job is %s while the disk at %s is full", state, where)
		}
		return id
	}
	const fill = "cat /dev/zero >> %[1]s/filler; for i in $(seq 64); do echo >> %[1]s/filler.$i; done; true"
	s.Must("n1", "root", "mount", "-o", "remount,size=2m", "/var/lib/caelum")
	s.Must("n1", "root", "bash", "-c", fmt.Sprintf(fill, "/var/lib/caelum")+" 2>/dev/null")
	id := waits("/var/lib/caelum", "make room in /var/lib/caelum")
	s.Must("n1", "root", "bash", "-c", "rm /var/lib/caelum/filler*")
	s.Completed(id)

	s.Must("n1", "root", "mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", "/run/caelum/jobs")
	s.Must("n1", "root", "bash", "-c", fmt.Sprintf(fill, "/run/caelum/jobs")+" 2>/dev/null")
	id = waits("/run/caelum/jobs", "/run/caelum/jobs/")
	s.Must("n1", "root", "bash", "-c", "rm /run/caelum/jobs/filler*")
	s.Completed(id)
	s.Must("n1", "root", "umount", "/run/caelum/jobs")
	if out := s.Try("n1", "nvml-emulator", "check"); out != "" && !strings.Contains(out, "ok") {
		s.t.Errorf("the GPU: %s", out)
	}
}

// offered reports whether slurmctld has an offer from n1.
func (s *site) offered() bool {
	return regexp.MustCompile(`mig:[^,(]*b:[1-9]`).
		MatchString(s.Must("", "root", "sinfo", "-h", "-p", "plain", "-n", "n1", "-O", "Gres:300"))
}

// startFails starts n1's agent. The agent must log the given errors and end, and n1's offers must be closed.
func (s *site) startFails(says ...string) {
	s.t.Helper()
	if err := s.StartUnit("agent-n1"); err == nil {
		s.t.Fatal("the agent started")
	}
	if err := s.StopUnit("agent-n1"); err != nil {
		s.t.Fatal(err)
	}
	log, _ := s.Log("agent-n1")
	for _, part := range says {
		if !strings.Contains(log, part) {
			s.t.Errorf("the agent's log does not contain %q", part)
		}
	}
	if s.offered() {
		s.t.Errorf(
			"the agent has ended, but slurmctld has these offers: %s",
			s.Try("", "sinfo", "-h", "-p", "plain", "-n", "n1", "-O", "Gres:300"),
		)
	}
}

// badConfiguration checks that the next start of the agent detects a mistake in caelum.yaml, and that the offers are
// closed.
func badConfiguration(s *site, _ string) {
	const path = "/etc/caelum/caelum.yaml"
	s.Must("n1", "root", "cp", path, "/etc/caelum/good")
	s.Within("n1 offers something", s.offered)
	s.Must("n1", "root", "bash", "-c", "echo 'poll_intervall: 1s' >> "+path)
	if err := s.StopUnit("agent-n1"); err != nil {
		s.t.Fatal(err)
	}
	if s.offered() {
		s.t.Error("the offers are not closed after a stop with an invalid configuration")
	}
	s.startFails(`unknown key "poll_intervall"; the keys are accounting_field`,
		"withdrawing the offers of n1 with the default configuration")
	s.Must("n1", "root", "mv", "/etc/caelum/good", path)
	if err := s.StartUnit("agent-n1"); err != nil {
		s.t.Fatal(err)
	}
	s.Within("n1 offers something", s.offered)
}

// badLedger checks that the agent does not start with a damaged ledger. Once the ledger has been moved away, the agent
// must restore the running job's lease from its lease file.
func badLedger(s *site, _ string) {
	const path = "/var/lib/caelum/ledger.db"
	if err := s.StopUnit("agent-n1"); err != nil {
		s.t.Fatal(err)
	}
	s.Must("n1", "root", "bash", "-c", "head -c 20000 /dev/urandom > "+path)
	s.startFails("ledger " + path + ": the contents of the file are damaged; move the file away")
	s.Must("n1", "root", "bash", "-c", "mkdir /var/lib/caelum/old && mv "+path+"* /var/lib/caelum/old")
	if err := s.StartUnit("agent-n1"); err != nil {
		s.t.Fatal(err)
	}
	// Without the ledger, the agent cannot tell its own idle instances from foreign ones. The test removes the idle
	// instances, as an administrator would.
	status, err := s.Status("n1")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, in := range status.GPUs[0].Instances {
		if in.State == api.StateForeign {
			s.Must("n1", "root", "nvml-emulator", "destroy", "0", fmt.Sprint(in.GI))
		}
	}
	s.Completed(s.Submit("cuda-process --exclusive --seconds 0", "--gres=mig:3g.20gb:1"))
}
