package agent

import "testing"

// BenchmarkReuse measures a prolog that reuses an idle instance, with the latencies of a real driver. The last user of
// the instance is the job's user, or another user; in the second case, the compute instance is re-created in the prolog
// or in the background before it.
func BenchmarkReuse(b *testing.B) {
	for _, c := range []struct {
		name             string
		same, background bool
	}{{"same", true, false}, {"inline", false, false}, {"background", false, true}} {
		b.Run(c.name, func(b *testing.B) {
			w := newWorld(b, 1, tightest)
			w.node.Emulator(b, "latency", "realistic")
			id := w.startNow("3g.20gb")
			w.prologs.Wait()
			b.ResetTimer()
			for b.Loop() {
				b.StopTimer()
				w.fake.End(id)
				w.fake.RunEpilogs()
				if c.background {
					w.agent.remakeIdle()
				}
				if !c.same {
					w.uid ^= 1
				}
				w.publish()
				b.StartTimer()
				id = w.startNow("3g.20gb")
				w.prologs.Wait()
			}
			if s := w.lease(id).Slices; len(s) != 1 || !s[0].Reused {
				b.Errorf("leased %+v", s)
			}
		})
	}
}
