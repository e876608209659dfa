package place

// Inputs are the parts of a [Situation] that a policy uses besides the pool. A caller can leave out the others.
type Inputs struct {
	Ends    bool // when the busy instances are expected to end
	Weights bool
	Mean    bool // MeanDuration
	Behind  int  // how many of the jobs that wait behind
}

// InputsOf returns the inputs of a policy.
func InputsOf(p Policy) Inputs {
	if l, ok := p.(interface{ inputs() Inputs }); ok {
		return l.inputs()
	}
	return Inputs{}
}

func (weighted) inputs() Inputs { return Inputs{Weights: true} }
func (Lifetime) inputs() Inputs { return Inputs{Ends: true, Mean: true} }
func (Scarcity) inputs() Inputs { return Inputs{Ends: true, Mean: true} }
func (QLA) inputs() Inputs      { return Inputs{Ends: true, Mean: true, Behind: qlaAhead} }
