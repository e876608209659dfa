package place

// Recent holds the recent requests. Some policies, and the choice of speculative offers, assume that future requests
// will be similar to these. The zero value contains no requests.
type Recent struct {
	asked   []Request // a ring buffer
	next    int
	weights *Weights // the result of Weights, or nil if it has not been computed yet
	mean    float64  // the result of MeanDuration, or -1 if it has not been computed yet
}

// RecentKept is the maximum number of requests that Recent stores.
const RecentKept = 200

// Add records a request.
func (r *Recent) Add(request Request) {
	r.weights, r.mean = nil, -1
	if len(r.asked) < RecentKept {
		r.asked = append(r.asked, request)
		return
	}
	r.asked[r.next] = request
	r.next = (r.next + 1) % RecentKept
}

// Weights returns the frequency of requests for each profile.
func (r *Recent) Weights() *Weights {
	if r.weights == nil {
		w := map[string]float64{}
		for _, q := range r.asked {
			w[q.Profile]++
		}
		r.weights = NewWeights(w)
	}
	return r.weights
}

// MeanDuration returns the mean duration, in seconds, of the requests whose duration is known, or 0 if there are no
// such requests. Jobs without a time limit are ignored, because each would count as 1e7 s, and a single such job in a
// hundred would dominate the mean.
func (r *Recent) MeanDuration() float64 {
	if r.mean >= 0 {
		return r.mean
	}
	sum, n := 0.0, 0
	for _, q := range r.asked {
		if q.Duration < unknownDuration {
			sum += q.Duration
			n++
		}
	}
	r.mean = sum / float64(max(n, 1))
	return r.mean
}
