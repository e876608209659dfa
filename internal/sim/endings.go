package sim

// endings is a heap of running jobs by their ends; of those that end at once the one that started first is first.
type endings []*job

func (e endings) less(i, j int) bool {
	a, b := e[i], e[j]
	if a.ends != b.ends {
		return a.ends < b.ends
	}
	return a.started < b.started
}

func (e endings) swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}

func (e *endings) push(j *job) {
	*e = append(*e, j)
	i := len(*e) - 1
	j.index = i
	for i > 0 && e.less(i, (i-1)/2) {
		e.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (e *endings) pop() *job {
	last := len(*e) - 1
	e.swap(0, last)
	j := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	for i := 0; ; {
		least := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < last && e.less(c, least) {
				least = c
			}
		}
		if least == i {
			return j
		}
		e.swap(i, least)
		i = least
	}
}
