package setup

import (
	"bytes"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// File is a file before and after the changes. Old is nil if the file does not exist.
type File struct {
	Path     string
	Old, New []byte
}

// Patch returns the changes to the files as a patch in git's format, which `patch -p1 -d /` and `git apply` can read.
// Unchanged files are omitted.
func Patch(files []File) []byte {
	var all bytes.Buffer
	for _, f := range files {
		writeFile(&all, f.Path, f.Old, f.New)
	}
	return all.Bytes()
}

// Inverse returns the patch that reverts the changes.
func Inverse(files []File) []byte {
	var all bytes.Buffer
	for _, f := range files {
		writeFile(&all, f.Path, f.New, f.Old)
	}
	return all.Bytes()
}

// writeFile writes the part of a patch for one file. before or after is nil if the file does not exist before or after
// the changes.
func writeFile(to *bytes.Buffer, path string, before, after []byte) {
	path = strings.TrimPrefix(path, "/")
	a, b := "a/"+path, "b/"+path
	text := diff.Diff(a, before, b, after)
	if text == nil {
		return
	}
	_, text, _ = bytes.Cut(text, []byte("+++ "+b+"\n"))
	to.WriteString("diff --git " + a + " " + b + "\n")
	switch {
	case before == nil:
		a = "/dev/null"
		to.WriteString("new file mode 100644\n")
	case after == nil:
		b = "/dev/null"
		to.WriteString("deleted file mode 100644\n")
	}
	to.WriteString("--- " + a + "\n+++ " + b + "\n")
	to.Write(text)
}
