package predict

import (
	"bufio"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestKeyVectors checks the vectors that spank/submit/test.lua uses to test job_submit.lua.
func TestKeyVectors(t *testing.T) {
	f, err := os.Open("testdata/keys.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	seen := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		line := s.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		w := strings.Fields(line)
		if len(w) < 10 || len(w) == 11 {
			t.Fatalf("%d words, want 10, or 12 or more: %s", len(w), line)
		}
		in := KeyInput{
			UID: uint32(number(t, w[0])), Account: text(t, w[1]), JobName: text(t, w[2]), Script: text(t, w[3]),
			GPUs: number(t, w[4]), Nodes: number(t, w[5]), Tasks: number(t, w[6]), CPUsPerTask: number(t, w[7]),
		}
		for _, arg := range w[min(11, len(w)):] {
			in.Args = append(in.Args, text(t, arg))
		}
		if got := Key(in); got != w[8] {
			t.Errorf("key of %s\n got %s", line, got)
		}
		if got := Fingerprint(in); got != text(t, w[9]) {
			t.Errorf("script fingerprint of %s\n got %s", line, got)
		}
		if got := strings.Join(Numbers(in.Args), ","); in.Script != "" && len(w) > 10 && got != text(t, w[10]) {
			t.Errorf("numbers of %s\n got %s", line, got)
		}
		seen++
	}
	if seen < 30 {
		t.Fatalf("only %d vectors read", seen)
	}
}

// TestKeyFields checks that the key depends on every field, but not on bytes beyond the length limits.
func TestKeyFields(t *testing.T) {
	base := KeyInput{UID: 1001, Account: "phys", JobName: "train", Script: "#!/bin/sh\n", GPUs: 1, Nodes: 1}
	change := map[string]func(*KeyInput){
		"uid":     func(k *KeyInput) { k.UID++ },
		"account": func(k *KeyInput) { k.Account = "chem" },
		"name":    func(k *KeyInput) { k.JobName = "train2" },
		"script":  func(k *KeyInput) { k.Script += "exit\n" },
		"shifted": func(k *KeyInput) { k.Account, k.JobName = "phystr", "ain" },
		"gpus":    func(k *KeyInput) { k.GPUs = 2 },
		"nodes":   func(k *KeyInput) { k.Nodes = 2 },
		"tasks":   func(k *KeyInput) { k.Tasks = 1 },
		"cpus":    func(k *KeyInput) { k.CPUsPerTask = 1 },
		"args":    func(k *KeyInput) { k.Args = []string{"train", "64"} },
		"order":   func(k *KeyInput) { k.Args = []string{"64", "train"} },
		"empty":   func(k *KeyInput) { k.Args = []string{""} },
		"joined":  func(k *KeyInput) { k.Args = []string{"1:a,1:b"} },
		"two":     func(k *KeyInput) { k.Args = []string{"a", "b"} },
		"shaped":  func(k *KeyInput) { k.Args = []string{"-b64"} },
	}
	seen := map[string]string{Key(base): "base"}
	for name, f := range change {
		k := base
		f(&k)
		if other, ok := seen[Key(k)]; ok {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[Key(k)] = name
	}

	same := map[string]func(*KeyInput){
		"account's case":     func(k *KeyInput) { k.Account = "PHYS" },
		"script beyond 4096": func(k *KeyInput) { k.Script = k.Script[:4096] + "other" },
		"too many arguments": func(k *KeyInput) { k.Args = make([]string, 65) },
	}
	base.Script = strings.Repeat("x", 5000)
	for name, f := range same {
		k := base
		f(&k)
		if Key(k) != Key(base) {
			t.Errorf("%s changes the key", name)
		}
	}
}

// TestFingerprintFields checks that the script fingerprint depends only on the script and the size of the job.
func TestFingerprintFields(t *testing.T) {
	base := KeyInput{UID: 1001, Account: "phys", JobName: "train", Script: "#!/bin/sh\n", GPUs: 1, Nodes: 1}
	same, other := base, []KeyInput{base, base, base, base}
	same.UID, same.Account, same.JobName, same.CPUsPerTask = 1002, "chem", "other", 4
	if Fingerprint(same) != Fingerprint(base) {
		t.Error("user, account, name or CPUs change the fingerprint")
	}
	other[0].Script += "exit\n"
	other[1].GPUs, other[2].Nodes, other[3].Tasks = 2, 2, 1
	seen := map[string]bool{Fingerprint(base): true, Key(base): true}
	for _, k := range other {
		if seen[Fingerprint(k)] {
			t.Errorf("%+v has the fingerprint of another input", k)
		}
		seen[Fingerprint(k)] = true
	}
	base.Script = ""
	if w := Fingerprint(base); w != "" {
		t.Errorf("without a script: %s", w)
	}
}

func number(t *testing.T, word string) int {
	n, err := strconv.Atoi(word)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// text decodes a word in the vectors. "-" is the empty string, %XX is a byte, and a word that ends with *n is
// repeated n times.
func text(t *testing.T, word string) string {
	if word == "-" {
		return ""
	}
	times := 1
	if i := strings.LastIndexByte(word, '*'); i >= 0 {
		word, times = word[:i], number(t, word[i+1:])
	}
	s, err := url.PathUnescape(word)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Repeat(s, times)
}
