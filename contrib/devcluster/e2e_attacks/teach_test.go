//go:build e2e

package e2eattacks

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"caelum/contrib/devcluster/cluster"
	"caelum/contrib/devcluster/clustertest"
	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
	"caelum/internal/core/tags"
)

const script = "#!/bin/bash\ncuda-process --memory 15000 --seconds 1\n"

// school is a cluster whose repository of earlier runs the test fills with `caelum repo import`, which has the same
// effect as a sync from slurmdbd.
type school struct {
	*clustertest.Site
	t    *testing.T
	repo string
}

func open(t *testing.T) school {
	t.Helper()
	s := clustertest.Start(t, cluster.Options{Nodes: 1, GPUs: 1})
	return school{s, t, filepath.Join(s.Dir, "school.db")}
}

// ask submits a script as a held job, and returns the job's tags and slices.
func (s school) ask(user, name, text string) (key, work, slices string) {
	s.t.Helper()
	path := filepath.Join(s.Dir, "home", user, name)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		s.t.Fatal(err)
	}
	id := s.Must("", user, "sbatch", "--parsable", "--hold", "--gres=gpu:1", "--job-name="+name, path)
	job := s.Must("", "root", "scontrol", "-o", "show", "job", id)
	_, comment, _ := strings.Cut(job, " AdminComment=")
	_, tres, _ := strings.Cut(job, " TresPerNode=")
	tres, _, _ = strings.Cut(tres, " ")
	s.Must("", user, "scancel", id)
	return tags.Value(comment, tags.Key), tags.Value(comment, tags.Fingerprint), clustertest.TresPerNode(tres)
}

func (s school) uid(user string) uint32 {
	s.t.Helper()
	n, err := strconv.ParseUint(s.Must("", user, "id", "-u"), 10, 32)
	if err != nil {
		s.t.Fatal(err)
	}
	return uint32(n)
}

// learn adds runs to the repository, and updates the decision table from them.
func (s school) learn(config string, runs []repo.Line) {
	s.t.Helper()
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	for i, n := range runs {
		n.Job, n.Node, n.GPUType, n.Profile, n.Slices, n.Util, n.State = uint32(
			i+1,
		), "n1", "a100", "7g.40gb", 1, -1, "COMPLETED"
		n.Seconds, n.Samples, n.MedianMiB, n.HighMiB = 60, 60, n.PeakMiB, n.PeakMiB
		if err := out.Encode(n); err != nil {
			s.t.Fatal(err)
		}
	}
	file, yaml := filepath.Join(s.Dir, "runs.jsonl"), filepath.Join(s.Dir, "learn.yaml")
	for name, text := range map[string][]byte{file: text.Bytes(), yaml: []byte(config)} {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	s.Must("", "root", "caelum", "repo", "import", "--repo", s.repo, file)
	s.t.Log(s.Must("", "root", "caelum", "repo", "decisions", "--repo", s.repo, "--config", yaml))
}

// many returns n runs of the same script by one user, all with the given peak memory. start is the time of the first
// run.
func many(n int, uid uint32, key, work string, peak float64, start int64) (runs []repo.Line) {
	for i := range n {
		runs = append(
			runs,
			repo.Line{
				Key:         key,
				Fingerprint: work,
				UID:         uid,
				User:        fmt.Sprint("u", uid),
				Name:        "train",
				PeakMiB:     peak,
				Start:       start + int64(i),
			},
		)
	}
	return runs
}

// Because of the safety margin, 15,000 MiB need a slice with 19,968 MiB. The smallest slice has enough memory for 100
// MiB.
const needed, crafted = ",gres/mig:3g.20gb:1", ",gres/mig:1g.5gb:1"

// TestCollidingKey checks an attacker who knows the victim's script and crafts another one with the same job key. The
// attacker runs the crafted script earlier and more often than the victim runs hers. The victim must get the profile
// that her own runs need.
func TestCollidingKey(t *testing.T) {
	s := open(t)
	key, work, _ := s.ask(victim, "train.sh", script)
	uid := s.uid(attacker)
	text := collide(t, key, func(script string) string {
		return predict.Key(
			predict.KeyInput{UID: uid, Account: "research", JobName: "mine.sh", Script: script, GPUs: 1, Nodes: 1},
		)
	})
	same, other, _ := s.ask(attacker, "mine.sh", text)
	if same != key || other == work {
		t.Fatalf("the attacker's key %s does not collide with %s", same, key)
	}
	const then = 1_700_000_000
	s.learn("", append(many(130, uid, key, other, 100, then), many(10, s.uid(victim), key, work, 15000, then+1000)...))
	if _, _, tres := s.ask(victim, "train.sh", script); !strings.HasSuffix(tres, needed) {
		t.Errorf("the victim's job got %s", tres)
	}
	if _, _, tres := s.ask(attacker, "mine.sh", text); !strings.HasSuffix(tres, crafted) {
		t.Errorf("the attacker's job got %s", tres)
	}
}

// TestSharedByOne checks a site that shares profiles between users. However often a single user runs a script, other
// users' jobs with the same script must not get their profile from these runs.
func TestSharedByOne(t *testing.T) {
	s := open(t)
	_, work, before := s.ask(victim, "train.sh", script)
	const then, share = 1_700_000_000, "share: true\n"
	mine := many(130, s.uid(attacker), "00000000000000aa", work, 100, then+1000)
	s.learn(share, mine)
	if _, _, tres := s.ask(victim, "train.sh", script); tres != before {
		t.Errorf("one user's runs changed the profile of another user's job from %s to %s", before, tres)
	}
	for uid := range uint32(3) {
		mine = append(mine, many(10, 4000+uid, fmt.Sprintf("00000000000000b%d", uid), work, 15000, then)...)
	}
	s.learn(share, mine)
	if _, _, tres := s.ask(victim, "train.sh", script); !strings.HasSuffix(tres, needed) {
		t.Errorf("three of four users need a 3g.20gb, but the job of another user got %s", tres)
	}
}

// TestEvictedLines checks that 20,000 newer scripts of the attacker do not evict the victim's line
// from the decision table.
func TestEvictedLines(t *testing.T) {
	s := open(t)
	key, work, _ := s.ask(victim, "train.sh", script)
	const then = 1_700_000_000
	runs := many(5, s.uid(victim), key, work, 15000, then)
	uid := s.uid(attacker)
	for i := range 20000 {
		runs = append(
			runs,
			many(1, uid, fmt.Sprintf("%016x", 1<<32+i), fmt.Sprintf("%016x", 1<<33+i), 100, then+1000)...)
	}
	s.learn("", runs)
	if _, _, tres := s.ask(victim, "train.sh", script); !strings.HasSuffix(tres, needed) {
		t.Errorf("the victim's job got %s", tres)
	}
}

// TestTagsAreNotTheUsers checks that slurmctld does not let users set AdminComment, which holds the tags.
func TestTagsAreNotTheUsers(t *testing.T) {
	s := open(t)
	const forged = "caelum:key=0123456789abcdef caelum:work=0123456789abcdef caelum:sized=7g.40gb caelum:held"
	client := buildClient(t, s.Site)
	s.Must("", attacker, client, "submit", "")
	if out, stderr, err := s.Exec(t.Context(), attacker, client, "submit", forged); err == nil ||
		!strings.Contains(stderr, "Access/permission denied") {
		t.Errorf("a submission: %s%s%v", out, stderr, err)
	}
	id := s.Submit("true", "--hold", "--gres=gpu:1", "--comment="+forged)
	before := s.tags(id)
	if _, _, err := s.Exec(t.Context(), attacker, "scontrol", "update", "job="+id, "AdminComment="+forged); err == nil {
		t.Error("slurmctld accepted an update of AdminComment by a user")
	}
	s.Must("", attacker, "scancel", id)
	s.Within("sacct shows job "+id, func() bool {
		return strings.Contains(s.Try("", "sacct", "-X", "-n", "-j", id, "-o", "State%20"), "CANCELLED")
	})
	for _, set := range []string{"AdminComment", "SystemComment"} {
		out, stderr, err := s.Exec(
			t.Context(),
			attacker,
			"sacctmgr",
			"-i",
			"modify",
			"job",
			"where",
			"jobid="+id,
			"set",
			set+"="+forged,
		)
		t.Log(set, err, out, stderr)
		if record := s.Must("", "root", "sacct", "-X", "-n", "-P", "-j", id, "-o", set); strings.Contains(
			record,
			"0123456789abcdef",
		) {
			t.Errorf("slurmdbd has %s=%q", set, record)
		}
	}
	if after := s.tags(id); after != before || strings.Contains(after, "0123456789abcdef") {
		t.Errorf("%q became %q", before, after)
	}
}

func (s school) tags(id string) string {
	s.t.Helper()
	_, rest, _ := strings.Cut(s.Must("", "root", "scontrol", "-o", "show", "job", id), " AdminComment=")
	comment, _, _ := strings.Cut(rest, " Comment=")
	return comment
}

// The constants define the hash in spank/submit/KEY.md.
const (
	prime = 4294967291
	base1 = 1000003
	base2 = 786433
)

// part is a piece of a script together with its contributions to the two numbers of the hash.
type part struct {
	text   string
	h1, h2 uint64
}

func (p part) and(o part) part {
	return part{p.text + o.text, (p.h1 + o.h1) % prime, (p.h2 + o.h2) % prime}
}

// A script from collide consists of collisionHead, eight blocks of letters, and collisionTail.
const (
	collisionHead = "#!/bin/bash\nexit 0\n#"
	collisionTail = "\n"
	blockSize     = 6 // letters
)

// collide creates a script with the given key by a generalized birthday attack. Two joining steps match the first
// number of the hash, and a third step matches the second number.
func collide(t *testing.T, key string, of func(script string) string) string {
	t.Helper()
	const near = 1 << 15
	target := numbers(t, key)
	zero, weight := weights(t, of)
	random := rand.New(rand.NewPCG(5, 6))
	by1 := func(p part) uint64 { return p.h1 }
	var pairs [4][]part
	for k := range pairs {
		a := blocks(random, weight[2*k*blockSize:(2*k+1)*blockSize])
		b := blocks(random, weight[(2*k+1)*blockSize:(2*k+2)*blockSize])
		if k == 0 { // the lists must sum to the missing amount, which the first list therefore subtracts
			for i := range a {
				a[i].h1 = (a[i].h1 + zero.h1 + prime - target.h1) % prime
				a[i].h2 = (a[i].h2 + zero.h2 + prime - target.h2) % prime
			}
		}
		pairs[k] = join(a, b, near, by1)
	}
	left, right := join(pairs[0], pairs[1], 0, by1), join(pairs[2], pairs[3], 0, by1)
	for _, p := range join(left, right, 0, func(p part) uint64 { return p.h2 }) {
		if script := collisionHead + p.text + collisionTail; of(script) == key {
			return script
		}
	}
	t.Fatal("collide found no collision")
	return ""
}

// numbers returns the two numbers of a key.
func numbers(t *testing.T, key string) part {
	t.Helper()
	k, err := strconv.ParseUint(key, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return part{h1: k >> 32, h2: k & 0xffffffff}
}

// weights returns the hash of the script whose letters are all "a", and the weight of each position. The weight of a
// position is the increase in the hash if the letter there is replaced with the next one in the alphabet.
func weights(t *testing.T, of func(script string) string) (zero part, weight [8 * blockSize]part) {
	t.Helper()
	plain := []byte(collisionHead + strings.Repeat("a", 8*blockSize) + collisionTail)
	zero = numbers(t, of(string(plain)))
	for i := range weight {
		plain[len(collisionHead)+i]++
		n := numbers(t, of(string(plain)))
		plain[len(collisionHead)+i]--
		weight[i] = part{h1: (n.h1 + prime - zero.h1) % prime, h2: (n.h2 + prime - zero.h2) % prime}
	}
	return zero, weight
}

// blocks returns random blocks of letters, each with the increase in the hash that the weights give.
func blocks(random *rand.Rand, weight []part) []part {
	all := make([]part, 1<<17)
	for n := range all {
		letters := make([]byte, len(weight))
		for i := range letters {
			c := uint64(random.IntN(26))
			letters[i] = byte('a' + c)
			all[n].h1 = (all[n].h1 + c*weight[i].h1) % prime
			all[n].h2 = (all[n].h2 + c*weight[i].h2) % prime
		}
		all[n].text = string(letters)
	}
	return all
}

// join adds each part of one list to each part of the other, and returns at most half a million of the sums: those
// whose number differs from 0 modulo prime by at most reach.
func join(a, b []part, reach uint64, number func(part) uint64) (sums []part) {
	slices.SortFunc(b, func(x, y part) int { return cmp.Compare(number(x), number(y)) })
	for _, p := range a {
		low := (2*prime - number(p) - reach) % prime
		at, _ := slices.BinarySearchFunc(b, low, func(x part, v uint64) int { return cmp.Compare(number(x), v) })
		for range b {
			sum := p.and(b[at%len(b)])
			if (number(sum)+reach)%prime > 2*reach {
				break
			}
			if sums = append(sums, sum); len(sums) == 1<<19 {
				return sums
			}
			at++
		}
	}
	return sums
}
