package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"caelum/internal/node/gpu"
	"caelum/internal/node/gpu/gputest"
)

// TestXidFatal checks the errors on which the offers depend. A program can cause the errors that are not fatal.
func TestXidFatal(t *testing.T) {
	for _, code := range []int{46, 48, 62, 64, 79, 95, 119, 120, 140, 143} {
		if !gpu.XidFatal(code) {
			t.Errorf("%s is not fatal", gpu.XidText(code))
		}
	}
	for _, code := range []int{0, 8, 13, 31, 32, 43, 45, 63, 68, 69, 74, 92, 94, 109, 154, 999} {
		if gpu.XidFatal(code) {
			t.Errorf("%s is fatal", gpu.XidText(code))
		}
	}
	if problem := gpu.Withdrawn(1, 95); !gpu.Broken(problem) || !gpu.Broken(gpu.Lost) {
		t.Errorf("%q is not a fault of the GPU", problem)
	}
}

// TestWatchXids checks the events of one GPU, and that a lost GPU ends the watch.
func TestWatchXids(t *testing.T) {
	node := gputest.New(t, "A100-40GB", 2)
	if err := node.WatchXids(context.Background(), 2, nil); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("a GPU that does not exist: %v", err)
	}
	in := create2g(t, node)
	got, ended := make(chan gpu.Xid, 1000), make(chan error)
	go func() { ended <- node.WatchXids(context.Background(), 0, func(x gpu.Xid) { got <- x }) }()
	for seen := false; !seen; { // events from before the registration are not reported
		node.Emulator(t, "xid", "1", "62")
		node.Emulator(t, "xid", "0", "13", fmt.Sprint(in.GI))
		select {
		case x := <-got:
			if x.GPU != 0 || x.Code != 13 || x.GI != in.GI || x.CI != -1 {
				t.Errorf("%+v", x)
			}
			seen = true
		default:
		}
	}
	node.Emulator(t, "lose", "0")
	if err := <-ended; !errors.Is(err, gpu.ErrLost) {
		t.Errorf("the watch of a lost GPU ended with %v", err)
	}
	for len(got) > 0 {
		if x := <-got; x.Code != 13 && (x.Code != gpu.XidOffBus || x.GI != gpu.FullGI) {
			t.Errorf("%+v", x)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := node.WatchXids(ctx, 1, nil); err != nil {
		t.Errorf("the watch of a context that has ended: %v", err)
	}
}
