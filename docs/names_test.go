package docs

import (
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// quoted matches the code in backticks.
const quoted = "`([^`\\s]+)`"

// sourceFiles matches the names of the repository's kinds of source files, with or without folders. Names with capital
// letters, such as NAME.go, are placeholders.
var sourceFiles = regexp.MustCompile(`^[a-z0-9_./-]+\.(go|c|h|lua|py|txt|tmpl|map)$`)

// repositoryPaths matches paths that begin with one of the repository's folders.
var repositoryPaths = regexp.MustCompile(`^(cmd|contrib|docs|etc|internal|spank)/[a-z0-9_./-]+$`)

// foreign lists the files of other projects that pages name without the project's folder.
var foreign = []string{"nvml.h", "cuda.h", "slurm.h", "spank.h"}

// TestNamedFilesExist checks that every file and folder of the repository which a page names exists, except test data.
// A page may omit the first folders of a path.
func TestNamedFilesExist(t *testing.T) {
	all := files(t, ".go", ".c", ".h", ".lua", ".py", ".txt", ".tmpl", ".map", ".md", ".yaml", ".service", "")
	known := map[string]bool{}
	for _, file := range all {
		for dir := filepath.ToSlash(file); dir != "."; dir = path.Dir(dir) {
			known[dir] = true
		}
	}
	exists := func(name string) bool {
		ends := func(file string) bool { return strings.HasSuffix(file, "/"+name) }
		return known[name] || slices.ContainsFunc(all, ends)
	}
	for _, page := range pages(t) {
		for _, name := range matches(indented.ReplaceAllString(read(t, page), ""), quoted) {
			name = strings.TrimSuffix(name, "/")
			if !repositoryPaths.MatchString(name) && !sourceFiles.MatchString(name) ||
				strings.Contains(name, "testdata") || slices.Contains(foreign, name) {
				continue
			}
			if !exists(name) && !exists(filepath.ToSlash(filepath.Join(filepath.Dir(page), name))) {
				t.Errorf("%s names the file %s, which does not exist", page, name)
			}
		}
	}
}

// placed matches an identifier and the file that a page says it is in.
var placed = regexp.MustCompile("`([A-Za-z_]\\w*)`\\s(?:in|\\()\\s?`([\\w./-]+\\.(?:go|c|h|lua))`")

// TestNamedFilesHaveIdentifiers checks that a file contains the identifier that a page says is in it. For a path that
// several files have, one of them is enough.
func TestNamedFilesHaveIdentifiers(t *testing.T) {
	sources := files(t, ".go", ".c", ".h", ".lua")
	for _, page := range pages(t) {
		for _, m := range placed.FindAllStringSubmatch(read(t, page), -1) {
			found := slices.ContainsFunc(sources, func(file string) bool {
				return (file == m[2] || strings.HasSuffix(file, "/"+m[2])) &&
					slices.Contains(word.FindAllString(read(t, file), -1), m[1])
			})
			if !found {
				t.Errorf("%s says that %s is in %s", page, m[1], m[2])
			}
		}
	}
}

// members matches the forms of a field or a method: Type.member, package.Type.member and variable.member.
var members = regexp.MustCompile(`^(?:[a-z]+\.)?([A-Za-z]+\.[A-Za-z]+)$`)

// camelCase matches the names that Go code declares without export. The names of NVML's functions have the same form.
var camelCase = regexp.MustCompile(`^[a-z]+[A-Z][a-z][A-Za-z]*$`)

var (
	word   = regexp.MustCompile(`[A-Za-z_]\w*`)
	method = regexp.MustCompile(`(?m)^func \(\w+ \*?(\w+)(?:\[\w+\])?\) (\w+)\(`)
	// structs matches the name and the body of a struct, and fields the names in a line of the body.
	structs = regexp.MustCompile(`(?ms)^type (\w+) struct \{$(.*?)^\}$`)
	fields  = regexp.MustCompile(`(?m)^\t(\w+(?:, \w+)*)\b`)
)

// declared returns the fields and methods in Go code in the form Type.member.
func declared(code string) map[string]bool {
	all := map[string]bool{}
	for _, m := range method.FindAllStringSubmatch(code, -1) {
		all[m[1]+"."+m[2]] = true
	}
	for _, s := range structs.FindAllStringSubmatch(code, -1) {
		for _, line := range fields.FindAllString(s[2], -1) {
			for _, field := range word.FindAllString(line, -1) {
				all[s[1]+"."+field] = true
			}
		}
	}
	return all
}

// developerPages matches the pages that name identifiers of the code.
var developerPages = regexp.MustCompile(`^(CONTRIBUTING\.md|docs/internals.*|spank/.*)$`)

// TestInternalsNameIdentifiers checks that the identifiers on the pages for developers occur in the code.
func TestInternalsNameIdentifiers(t *testing.T) {
	var all strings.Builder
	for _, file := range files(t, ".go", ".c", ".h", ".lua", ".py") {
		all.WriteString(read(t, file))
	}
	code, words := all.String(), map[string]bool{}
	for _, w := range word.FindAllString(code, -1) {
		words[w] = true
	}
	known := declared(code)
	for _, page := range pages(t) {
		if !developerPages.MatchString(page) {
			continue
		}
		for _, name := range matches(read(t, page), quoted) {
			name = strings.TrimSuffix(name, "()")
			m := members.FindStringSubmatch(name)
			switch {
			case sourceFiles.MatchString(strings.ToLower(name)):
			case m != nil && !known[m[1]] && !strings.Contains(code, name),
				camelCase.MatchString(name) && !strings.HasPrefix(name, "kmigmgr") && !words[name]:
				t.Errorf("%s names %s, which does not occur in the code", page, name)
			}
		}
	}
}
