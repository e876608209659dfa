package place

// Look says what of a [Situation] a policy looks at, besides the pool: the rest need not be gathered.
type Look struct {
	Ends    bool // when what is busy is expected to end
	Weights bool
	Mean    bool // MeanDuration
	Behind  int  // how many of those that wait behind
}

// LookOf is what a policy looks at.
func LookOf(p Policy) Look {
	if l, ok := p.(interface{ look() Look }); ok {
		return l.look()
	}
	return Look{}
}

func (weighted) look() Look { return Look{Weights: true} }
func (Lifetime) look() Look { return Look{Ends: true, Mean: true} }
func (Scarcity) look() Look { return Look{Ends: true, Mean: true} }
func (QLA) look() Look      { return Look{Ends: true, Mean: true, Behind: qlaAhead} }
