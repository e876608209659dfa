package mail

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// install copies caelum-mail to a directory and replaces its settings: the mailer writes its arguments and its standard
// input to the file sent, and caelum writes its arguments, or fails if the job is 13.
func install(t *testing.T) (script, sent string) {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile("caelum-mail")
	if err != nil {
		t.Fatal(err)
	}
	sent = filepath.Join(dir, "sent")
	for name, body := range map[string]string{
		"mailer": "#!/bin/sh\nfor a; do printf '<%s>' \"$a\"; done >" + sent + "\nenv >" + sent + ".env\n" +
			"echo >>" + sent + "; cat >>" + sent + "\n",
		"caelum": "#!/bin/sh\necho \"$@\"\n[ \"$2\" != 13 ]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for old, value := range map[string]string{
		"\nmailer=/usr/bin/mail\n":   "\nmailer=" + dir + "/mailer\n",
		"\ncaelum=/usr/bin/caelum\n": "\ncaelum=" + dir + "/caelum\n",
		"\ndelay=20\n":               "\ndelay=0\n",
	} {
		if strings.Count(string(text), old) != 1 {
			t.Fatalf("caelum-mail does not contain the setting %q once", old)
		}
		text = []byte(strings.Replace(string(text), old, value, 1))
	}
	script = filepath.Join(dir, "caelum-mail")
	if err := os.WriteFile(script, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return script, sent
}

const ended = ", Run time 00:00:01, COMPLETED, ExitCode 0"

// TestMail checks the mails that caelum-mail sends for subjects like those of slurmctld 22.05.8.
func TestMail(t *testing.T) {
	for _, c := range []struct{ name, kind, subject, recipient, want string }{
		{"a job", "Ended", "Slurm Job_id=12 Name=train Ended" + ended, "user1",
			"<-s><Slurm Job_id=12 Name=train Ended" + ended + "><user1>\nreport 12\n"},
		{"a failed task of an array", "Failed", "Slurm Array Task Job_id=12_3 (15) Name=a Failed", "u@a.example,v",
			"<-s><Slurm Array Task Job_id=12_3 (15) Name=a Failed><u@a.example,v>\nreport 12_3\n"},
		{"an array", "Ended", "Slurm Array Summary Job_id=12_* (12) Name=a Ended", "user1",
			"<-s><Slurm Array Summary Job_id=12_* (12) Name=a Ended><user1>\nreport 12\n"},
		{"the start of a job", "Began", "Slurm Job_id=12 Name=train Began", "user1",
			"<-s><Slurm Job_id=12 Name=train Began><user1>\n\n"},
		{"a job without a report", "Ended", "Slurm Job_id=13 Name=train Ended", "user1",
			"<-s><Slurm Job_id=13 Name=train Ended><user1>\n\n"},
		{"a name that contains another job", "Ended", "Slurm Job_id=12 Name=x Job_id=99 Ended Ended", "user1",
			"<-s><Slurm Job_id=12 Name=x Job_id=99 Ended Ended><user1>\nreport 12\n"},
		{"a name with another header", "Ended", "Slurm Job_id=12 Name=x\r\nBcc: y Ended", "user1",
			"<-s><Slurm Job_id=12 Name=x??Bcc: y Ended><user1>\nreport 12\n"},
		{"a name with commands", "Ended", "Slurm Job_id=12 Name=$(exit 9)`exit 9`';*\" %s -a Ended", "user1",
			"<-s><Slurm Job_id=12 Name=$(exit 9)`exit 9`';*\" %s -a Ended><user1>\nreport 12\n"},
		{"another subject", "Ended", "Job_id=12 Name=x", "user1", "<-s><Job_id=12 Name=x><user1>\n\n"},
		{"an id with an option", "Ended", "Slurm Job_id=--run-dir=/ Name=x", "user1",
			"<-s><Slurm Job_id=--run-dir=/ Name=x><user1>\n\n"},
		{"no recipient", "Ended", "Slurm Job_id=12 Name=x", "", ""},
		{"an option", "Ended", "Slurm Job_id=12 Name=x", "-Xfile", ""},
		{"an option in a list", "Ended", "Slurm Job_id=12 Name=x", "user1,-Xfile", ""},
		{"a command", "Ended", "Slurm Job_id=12 Name=x", "|touch", ""},
		{"a file", "Ended", "Slurm Job_id=12 Name=x", "user1,/etc/x", ""},
		{"a folder", "Ended", "Slurm Job_id=12 Name=x", "+x", ""},
		{"another header", "Ended", "Slurm Job_id=12 Name=x", "user1\nBcc: y", ""},
		{"a blank", "Ended", "Slurm Job_id=12 Name=x", "user1 -Xfile", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			script, sent := install(t)
			cmd := exec.Command(script, "-s", c.subject, c.recipient)
			cmd.Env = []string{
				"SLURM_JOB_MAIL_TYPE=" + c.kind, "SLURM_JOB_ID=99", "mailer=/bin/false", "caelum=/bin/false", "id=99",
				"delay=x", "MAILRC=x", "PATH=" + t.TempDir(),
			}
			out, err := cmd.CombinedOutput()
			got, _ := os.ReadFile(sent)
			if string(got) != c.want || (err == nil) != (c.want != "") {
				t.Errorf("sent %q, want %q; %v, %s", got, c.want, err, out)
			}
			if env, _ := os.ReadFile(sent + ".env"); strings.Contains(string(env), "MAILRC") {
				t.Errorf("the mailer's environment contains variables of the caller:\n%s", env)
			}
		})
	}
}

// TestUsage checks that caelum-mail sends nothing if its arguments do not have the expected form.
func TestUsage(t *testing.T) {
	script, sent := install(t)
	for _, args := range [][]string{{}, {"-s", "x"}, {"-a", "x", "user1"}, {"-s", "x", "user1", "-Xfile"}} {
		if exec.Command(script, args...).Run() == nil {
			t.Errorf("caelum-mail accepts %q", args)
		}
	}
	if _, err := os.Stat(sent); err == nil {
		t.Error("caelum-mail has sent a mail")
	}
}

// TestBusy sends a mail while many other copies of the script are running. The mail must not contain a report.
func TestBusy(t *testing.T) {
	other := filepath.Join(t.TempDir(), "caelum-mail")
	if err := os.WriteFile(other, []byte("#!/bin/sh\nread line\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		cmd := exec.Command(other)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			stdin.Close()
			cmd.Wait()
		})
	}
	script, sent := install(t)
	cmd := exec.Command(script, "-s", "Slurm Job_id=12 Name=train Ended"+ended, "user1")
	cmd.Env = append(os.Environ(), "SLURM_JOB_MAIL_TYPE=Ended")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if text, err := os.ReadFile(sent); err != nil || strings.Contains(string(text), "report 12") {
		t.Errorf("%v: %s", err, text)
	}
}
