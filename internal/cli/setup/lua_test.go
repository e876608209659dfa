package setup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// caller loads job_submit.lua as slurmctld does, calls both functions, and prints the value that loading returned,
// the functions' results, and the calls to Caelum's functions.
const caller = `
slurm = {SUCCESS = 0, ERROR = -1}
calls = {}
real_dofile = dofile
function dofile(path)
  if path ~= "/usr/share/caelum/job_submit.lua" then return real_dofile(path) end
  local function note(text, job, uid) calls[#calls + 1] = text .. " " .. tostring(job.name) .. " " .. uid end
  function caelum_restore_types(job) job.type = 'restored' end
  function slurm_job_submit(job, parts, uid) note("submit", job, uid) return 7 end
  function slurm_job_modify(job, rec, parts, uid) note("modify", job, uid) return 8 end
end
local loaded = assert(loadfile(arg[1]))()
print(loaded, slurm_job_submit({}, {}, 1001), slurm_job_modify({}, {}, {}, 1002), table.concat(calls, ", "))
`

// TestJobSubmit runs a site's wrapped files with every installed Lua.
func TestJobSubmit(t *testing.T) {
	const modify = "function slurm_job_modify(job) job.name = 'm' return slurm.SUCCESS end\n"
	const both = "submit a 1001, modify m 1002"
	cases := map[string]struct{ text, want string }{
		"changes the job": {
			"function slurm_job_submit(job) job.name = 'a' return slurm.SUCCESS end\n" + modify +
				"return slurm.SUCCESS\n",
			"0 7 8 " + both,
		},
		"reads a type that the plugin removed": {
			"function slurm_job_submit(job) job.name = job.type return slurm.SUCCESS end\n" + modify,
			"nil 7 8 submit restored 1001, modify m 1002",
		},
		"refuses the job": {
			"function slurm_job_submit() return slurm.ERROR end\n" + modify + "return slurm.SUCCESS -- end",
			"0 -1 8 modify m 1002",
		},
		"returns nothing": {
			"#!/usr/bin/lua\r\nfunction slurm_job_submit(job)\r\n  job.name = 'a'\r\nend\r\n" + modify,
			"nil 7 8 " + both,
		},
		"returns text": {
			"function slurm_job_submit(job) job.name = 'a' return 'no number' end\n" + modify + "return 3",
			"3 7 8 " + both,
		},
		"has local variables": {
			"local site_submit, loaded, result = 'a', 5, 6\n" +
				"function slurm_job_submit(job) job.name = site_submit end\n" + modify + "do return loaded end",
			"5 7 8 " + both,
		},
	}
	tried := 0
	for _, lua := range []string{"lua5.1", "lua5.3", "lua5.4", "lua"} {
		if _, err := exec.LookPath(lua); err != nil {
			continue
		}
		tried++
		for name, c := range cases {
			s := site{
				"/etc/slurm/slurm.conf":     "JobSubmitPlugins=lua\nNodeName=n[1-2]\nPartitionName=gpu Nodes=ALL\n",
				"/etc/slurm/job_submit.lua": c.text,
			}
			r, err := s.merge("n[1-2]", "gpu")
			if err != nil || len(r.Problems) > 0 {
				t.Fatal(err, r.Problems)
			}
			changed := s.check(t, r, "n[1-2]", "gpu")
			dir := t.TempDir()
			for file, text := range map[string]string{
				"caller.lua": caller, "job_submit.lua": changed["/etc/slurm/job_submit.lua"],
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(lua, "caller.lua", "job_submit.lua")
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if got := strings.Join(strings.Fields(string(out)), " "); err != nil || got != c.want {
				t.Errorf("%s, a file that %s: %q, want %q (%v)", lua, name, got, c.want, err)
			}
		}
	}
	if tried == 0 {
		t.Skip("no Lua is installed")
	}
}
