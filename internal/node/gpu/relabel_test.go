package gpu

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// TestResizeEnds checks that a call to Resize ends with its context while another goroutine waits for the driver, and
// that the instance then has its earlier size.
func TestResizeEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, name := range []string{"sample", "limit"} {
		d := &divided{on: map[int]*held{FractionGI(0): {}}}
		f := &Fractions{gpus: map[int]*divided{0: d}}
		map[string]*sync.Mutex{"sample": &d.resizing, "limit": &d.changes}[name].Lock()
		size := 1
		err := f.Resize(ctx, 0, FractionGI(0), func() error { size = 2; return nil }, func() error { size = 1; return nil })
		if !errors.Is(err, context.Canceled) || size != 1 {
			t.Errorf("%s: size %d, %v", name, size, err)
		}
	}
}
