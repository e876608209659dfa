package place

// Inputs lists the parts of a [Situation] that a policy uses in addition to the pool. A caller can leave the other
// parts unset.
type Inputs struct {
	Ends    bool // the times at which the busy instances are expected to end
	Weights bool
	Mean    bool // MeanDuration
	Behind  int  // the number of jobs behind the request
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
