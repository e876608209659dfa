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
		resize := func(to int) func() error { return func() error { size = to; return nil } }
		err := f.Resize(ctx, 0, FractionGI(0), resize(2), resize(1))
		if !errors.Is(err, context.Canceled) || size != 1 {
			t.Errorf("%s: size %d, %v", name, size, err)
		}
	}
}
