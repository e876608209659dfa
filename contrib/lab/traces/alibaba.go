package traces

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"caelum/internal/core/mig"
	"caelum/internal/sim/trace"
)

// pod is a row of a pod list in Alibaba's gpu-v2023 trace (openb_pod_list_*.csv).
type pod struct {
	name             string
	gpus, milli      float64 // number of GPUs; requested thousandths of each GPU
	created, deleted float64 // seconds
}

// podColumns lists the columns with the numbers of a pod.
var podColumns = [...]string{"num_gpu", "gpu_milli", "creation_time", "deletion_time"}

// readPods parses a pod list. It returns an error if two pods have the same name.
func readPods(file string, r io.Reader) ([]pod, error) {
	t, err := trace.OpenTable(file, r, commas, append([]string{"name"}, podColumns[:]...)...)
	if err != nil {
		return nil, err
	}
	var all []pod
	err = t.Each(func() error {
		p := pod{name: t.Text("name")}
		if err := t.Once("pod", p.name, ""); err != nil {
			return err
		}
		var n [4]float64
		for k, column := range podColumns {
			var err error
			if n[k], err = number(t, column); err != nil {
				return err
			}
		}
		p.gpus, p.milli, p.created, p.deleted = n[0], n[1], n[2], n[3]
		if p.gpus != math.Trunc(p.gpus) {
			return t.Bad(fmt.Errorf("num_gpu is %v, but must be a whole number", p.gpus))
		}
		if p.milli > 1000 {
			return t.Bad(fmt.Errorf("gpu_milli is %v, but must be at most 1000", p.milli))
		}
		all = append(all, p)
		return nil
	})
	if err == nil && all == nil {
		err = &trace.LineError{File: file, Line: 1, Err: errors.New("no pods")}
	}
	return all, err
}

// Alibaba parses a pod list in Alibaba's gpu-v2023 trace. Each pod becomes a job that is submitted at the time when the
// pod was created and whose run time is the lifetime of the pod. A pod with one GPU needs the requested fraction of the
// GPU's compute and memory. If multiGPU is true, a pod with several GPUs needs as many GPUs with the mig.Full profile
// on one node; otherwise, the pod is omitted. Pods are also omitted if they have no GPU, if they were deleted before
// they were created, or if their creation time is an outlier, because a few services were created long before all other
// pods.
func Alibaba(file string, r io.Reader, multiGPU bool) (*trace.Workload, error) {
	pods, err := readPods(file, r)
	if err != nil {
		return nil, err
	}
	w := &trace.Workload{}
	for _, p := range withoutOutliers(w, pods) {
		switch {
		case p.gpus == 0:
			w.Leave("no GPU", 1)
		case p.gpus != 1 && !multiGPU:
			w.Leave("more than one GPU", 1)
		case p.deleted < p.created:
			w.Leave("deleted before it was created", 1)
		case p.gpus != 1:
			w.Jobs = append(w.Jobs, trace.Job{
				ID:       p.name,
				Submit:   p.created,
				Duration: p.deleted - p.created,
				Profile:  mig.Full,
				Slices:   int(p.gpus),
			})
		default:
			w.Jobs = append(w.Jobs, trace.Job{
				ID:       p.name,
				Submit:   p.created,
				Duration: p.deleted - p.created,
				Compute:  p.milli / 1000,
				Memory:   p.milli / 1000,
			})
		}
	}
	w.Settle()
	return w, nil
}

// grmuProfiles lists the profiles of an A100-40GB and, for each, the fraction of a GPU that it represents according to
// GRMU: the product of its compute slices and its units, divided by 7 x 8.
var grmuProfiles = []struct {
	name  string
	share float64
}{
	{"1g.5gb", 1. * 1 / 56},
	{"1g.10gb", 1. * 2 / 56},
	{"2g.10gb", 2. * 2 / 56},
	{"3g.20gb", 3. * 4 / 56},
	{"4g.20gb", 4. * 4 / 56},
	{"7g.40gb", 1},
}

// withoutOutliers returns all pods except those whose creation time is an outlier: more than 1.5 interquartile ranges
// before the first quartile or after the third.
func withoutOutliers(w *trace.Workload, pods []pod) []pod {
	var times []float64
	for _, p := range pods {
		times = append(times, p.created)
	}
	slices.Sort(times)
	low, high := quartile(times, 0.25), quartile(times, 0.75)
	reach := 1.5 * (high - low)
	kept := slices.DeleteFunc(
		slices.Clone(pods),
		func(p pod) bool { return p.created < low-reach || p.created > high+reach },
	)
	w.Leave("creation time is an outlier", len(pods)-len(kept))
	return kept
}

// GRMU parses a pod list with the method of the GRMU paper (arXiv 2502.01909). It omits outliers, pods with several
// GPUs, and pods that were deleted before they were created. It divides the request of each pod by the largest request
// of any pod and chooses the profile with the nearest fraction. For a pod without a GPU, the request is 0.
func GRMU(file string, r io.Reader) (*trace.Workload, error) {
	pods, err := readPods(file, r)
	if err != nil {
		return nil, err
	}
	w := &trace.Workload{}
	most := 0.0
	for _, p := range withoutOutliers(w, pods) {
		switch {
		case p.gpus > 1:
			w.Leave("more than one GPU", 1)
		case p.deleted < p.created:
			w.Leave("deleted before it was created", 1)
		default:
			share := p.gpus * p.milli / 1000
			most = max(most, share)
			j := trace.Job{ID: p.name, Submit: p.created, Duration: p.deleted - p.created, Compute: share}
			w.Jobs = append(w.Jobs, j)
		}
	}
	for k := range w.Jobs {
		j := &w.Jobs[k]
		best := math.Inf(1)
		for _, p := range grmuProfiles {
			if d := math.Abs(p.share - j.Compute/max(most, 1e-9)); d < best {
				best, j.Profile = d, p.name
			}
		}
		j.Compute = 0
	}
	w.Settle()
	return w, nil
}

// quartile returns the q-quantile of sorted values, with linear interpolation.
func quartile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	k := int(at)
	if k+1 == len(sorted) {
		return sorted[k]
	}
	return sorted[k] + (at-float64(k))*(sorted[k+1]-sorted[k])
}
