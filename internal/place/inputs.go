package place

// Inputs lists the parts of a [Situation] that a policy uses in addition to the pool. Callers do not have to set the
// other parts.
type Inputs struct {
	Ends    bool // the expected end times of the busy instances
	Weights bool
	Mean    bool // MeanDuration
	Behind  int  // the number of jobs behind the request that the policy considers
}

// InputsOf returns the inputs that a policy uses.
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
