package setup

import (
	"bytes"
	"path"
	"slices"
	"strings"
)

// plugins edits plugstack.conf and job_submit.lua.
func (m *merger) plugins(lines []line) {
	m.plugstack(lines)
	m.jobSubmit(lines)
}

func (m *merger) plugstack(lines []line) {
	name := m.beside("plugstack.conf")
	if in, w, ok := parameter(lines, "PlugStackConfig"); ok {
		if !path.IsAbs(w.value) {
			m.problem(in, "PlugStackConfig is not an absolute path; correct the line")
			return
		}
		name = w.value
	}
	f := m.open(name)
	if f == nil {
		return
	}
	for text := range bytes.Lines(f.old) {
		text, _, _ = bytes.Cut(text, []byte("#"))
		if bytes.Contains(text, []byte("spank_caelum.so")) {
			return
		}
	}
	f.tail = append(f.tail, strings.TrimSuffix(m.Sections["plugstack.conf"], "\n"))
}

// jobSubmit makes the site's job_submit.lua call Caelum's functions. It turns the site's text into the body of a
// function without parsing it. A Lua chunk is always a valid function body, even if it ends with a return statement.
// The site's local variables are therefore separate from those of the lines above and below, and the file still returns
// the site's value when slurmctld loads it.
func (m *merger) jobSubmit(lines []line) {
	f := m.open(m.beside("job_submit.lua"))
	if f == nil {
		return
	}
	if f.fresh {
		f.tail = []string{
			"-- Caelum's file defines slurm_job_submit and slurm_job_modify.",
			"dofile(" + luaString(m.JobSubmit) + ")",
			"return slurm.SUCCESS",
		}
		return
	}
	above, below := m.wrapper()
	switch {
	case bytes.Contains(f.old, []byte(above)) && bytes.Contains(f.old, []byte(below[0])),
		bytes.Contains(f.old, []byte("dofile("+luaString(m.JobSubmit)+")")):
		return
	case bytes.Contains(bytes.ToLower(f.old), []byte("caelum")):
		m.note("%s mentions Caelum, so setup does not change it. Check that it calls Caelum's functions.", f.path)
		return
	case bytes.HasPrefix(f.old, []byte("\xef\xbb\xbf")), bytes.HasPrefix(f.old, []byte("\x1bLua")):
		m.Problems = append(m.Problems, Problem{f.path, 1, "the file begins with a byte order mark or is compiled; " +
			"replace it with plain Lua text"})
		return
	}
	if _, plugins, ok := parameter(lines, "JobSubmitPlugins"); !ok ||
		!slices.ContainsFunc(items(plugins.value), func(p string) bool { return elementName(p) == "lua" }) {
		m.Problems = append(m.Problems, Problem{f.path, 0, "the file exists, but JobSubmitPlugins in slurm.conf does " +
			"not include lua, so Slurm does not use the file; rename or remove it"})
		return
	}
	at := 0
	if bytes.HasPrefix(f.old, []byte("#")) { // Lua ignores a first line that begins with #
		at = len(f.old)
		if i := bytes.IndexByte(f.old, '\n'); i >= 0 {
			at = i + 1
		}
	}
	f.edits = append(f.edits, edit{at, at, above + f.eol()})
	f.tail = below
}

// wrapper returns the lines above and below the text of the site's job_submit.lua. The functions are the same as in
// docs/install.md: the site's function processes the job first, and Caelum's function processes it only if the site's
// function accepts it. Slurm treats a result that is not a number as success.
func (m *merger) wrapper() (above string, below []string) {
	above = "local function site_job_submit(...) -- Caelum: the lines up to the matching comment are the site's"
	return above, strings.Split(`end -- Caelum: the end of the site's lines
local loaded = site_job_submit(...)
local site_submit, site_modify = slurm_job_submit, slurm_job_modify
dofile(`+luaString(m.JobSubmit)+`)
local caelum_submit, caelum_modify = slurm_job_submit, slurm_job_modify

function slurm_job_submit(job, partitions, uid)
  caelum_restore_types(job)
  local result = site_submit(job, partitions, uid)
  if (tonumber(result) or slurm.SUCCESS) ~= slurm.SUCCESS then return result end
  return caelum_submit(job, partitions, uid)
end

function slurm_job_modify(job, record, partitions, uid)
  local result = site_modify(job, record, partitions, uid)
  if (tonumber(result) or slurm.SUCCESS) ~= slurm.SUCCESS then return result end
  return caelum_modify(job, record, partitions, uid)
end

return loaded`, "\n")
}

// luaString returns a Lua string literal. The path has been checked not to contain quotes or backslashes.
func luaString(text string) string { return `"` + text + `"` }
