package slurm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Constraint is a job's --constraint: an expression of features that nodes must have. Every node meets the zero value.
//
// The expression is evaluated as in slurmctld (job_scheduler.c, build_feature_list, and node_scheduler.c,
// valid_feature_counts, of 22.05.8 and 26.05.3): & and | have the same precedence and are applied from left to right,
// one level of parentheses groups features, and a comma is an &. If alternatives are in brackets, [a|b], all nodes of a
// job must meet the same alternative.
type Constraint struct {
	text string
	// always contains the groups that every node must meet, and anyOf contains the alternatives in brackets.
	always []group
	anyOf  []group
	// nodes is the largest count (*n): the job needs this many nodes with the feature.
	nodes int
	// problem is the reason for which the expression cannot be evaluated for a single node, or "" if it can.
	problem string
}

// group is a feature, or several features in parentheses.
type group struct {
	or    bool // joined to the groups before it by |, otherwise by &
	names []joined
}

type joined struct {
	or   bool
	name string
}

// maxFeatures limits the features of an expression, because every plan searches each of them on every node.
const maxFeatures = 64

// maxShown limits the length in bytes of an expression in a reason. A reason is made for each node, and a user can
// write an expression of 100 kB.
const maxShown = 200

// ParseConstraint reads an expression. It returns no error: if an expression cannot be evaluated for a single node,
// Lacking returns the reason.
func ParseConstraint(text string) Constraint {
	if isNull(text) {
		return Constraint{}
	}
	c := Constraint{text: text}
	if len(text) > maxShown {
		c.text = text[:maxShown] + "..."
	}
	p := constraintParser{rest: strings.ReplaceAll(text, ",", "&"), c: &c}
	if err := p.expression(); err != nil {
		return Constraint{text: c.text, problem: err.Error()}
	}
	return c
}

// String returns the expression as slurmctld shows it, truncated after maxShown bytes.
func (c Constraint) String() string { return c.text }

// Lacking returns the reason for which a node with these features cannot be one of a job's nodes, or "" if it can.
// nodes is the number of the job's nodes.
func (c Constraint) Lacking(features []string, nodes int) string {
	switch {
	case c.problem != "":
		return fmt.Sprintf("cannot be chosen for the constraint %s, which %s", c.text, c.problem)
	case c.nodes > max(nodes, 1):
		return fmt.Sprintf("cannot be chosen for the constraint %s, which needs %d nodes; the job asks for %d",
			c.text, c.nodes, max(nodes, 1))
	case !meets(features, c.always), len(c.anyOf) > 0 && !slices.ContainsFunc(c.anyOf, met(features)):
		return "does not have the features " + c.text
	}
	return ""
}

// Alternatives returns the number of alternatives in brackets. All nodes of a job must meet the same alternative.
func (c Constraint) Alternatives() int { return len(c.anyOf) }

// Alternative reports whether a node with these features meets alternative k.
func (c Constraint) Alternative(k int, features []string) bool { return c.anyOf[k].met(features) }

func met(features []string) func(group) bool {
	return func(g group) bool { return g.met(features) }
}

// meets reports whether features satisfy groups, which are joined from left to right.
func meets(features []string, groups []group) bool {
	met := true
	for _, g := range groups {
		if g.or {
			met = met || g.met(features)
		} else {
			met = met && g.met(features)
		}
	}
	return met
}

func (g group) met(features []string) bool {
	met := true
	for _, n := range g.names {
		has := slices.Contains(features, n.name)
		if n.or {
			met = met || has
		} else {
			met = met && has
		}
	}
	return met
}

// constraintParser reads an expression from left to right; rest is the unread text. slurmctld accepts more expressions.
// If slurmctld ignores a part of an expression, or releases interpret it differently, the parser returns an error.
type constraintParser struct {
	rest     string
	c        *Constraint
	features int
}

const constraintOperators = "&|()[]*"

func (p *constraintParser) next(text string) bool {
	rest, ok := strings.CutPrefix(p.rest, text)
	p.rest = rest
	return ok
}

func (p *constraintParser) expression() error {
	or, counted, either, bracket := false, false, false, false
	for {
		if p.next("[") {
			if bracket || or {
				return errors.New("has brackets that are not joined with &")
			}
			bracket = true
			if err := p.alternatives(); err != nil {
				return err
			}
			if strings.HasPrefix(p.rest, "|") {
				return errors.New("has brackets that are not joined with &")
			}
		} else {
			g, count, err := p.group(or)
			if err != nil {
				return err
			}
			p.c.always = append(p.c.always, g)
			counted = counted || count > 0
		}
		switch {
		case p.rest == "" && counted && either:
			return errors.New("has counts that are joined with |")
		case p.rest == "":
			return nil
		case p.next("&"):
			or = false
		case p.next("|"):
			or, either = true, true
		default:
			return errors.New("cannot be read")
		}
	}
}

// alternatives reads [a|b], after the first bracket.
func (p *constraintParser) alternatives() error {
	for {
		if strings.HasPrefix(p.rest, "(") {
			return errors.New("has parentheses in brackets")
		}
		g, count, err := p.group(false)
		if err != nil {
			return err
		}
		p.c.anyOf = append(p.c.anyOf, g)
		switch {
		case count > 0 && len(p.c.anyOf) > 1,
			count > 0 && !strings.HasPrefix(p.rest, "]"),
			strings.HasPrefix(p.rest, "&"):
			return errors.New("asks for different features on different nodes; use a heterogeneous job")
		case p.next("]"):
			return nil
		case !p.next("|"):
			return errors.New("cannot be read")
		}
	}
}

// group reads a feature, or several features in parentheses, and the count after them.
func (p *constraintParser) group(or bool) (g group, count int, err error) {
	g.or = or
	if p.next("(") {
		for or := false; ; or = p.next("|") {
			if err := p.feature(&g, or); err != nil {
				return g, 0, err
			}
			if p.next(")") {
				break
			}
			if !p.next("&") && !strings.HasPrefix(p.rest, "|") {
				return g, 0, errors.New("cannot be read")
			}
		}
	} else if err := p.feature(&g, false); err != nil {
		return g, 0, err
	}
	if !p.next("*") {
		return g, 0, nil
	}
	digits := len(p.rest) - len(strings.TrimLeft(p.rest, "0123456789"))
	count, err = strconv.Atoi(p.rest[:digits])
	if err != nil || count < 1 {
		return g, 0, errors.New("has a count that cannot be read")
	}
	p.rest = p.rest[digits:]
	p.c.nodes = max(p.c.nodes, count)
	return g, count, nil
}

func (p *constraintParser) feature(g *group, or bool) error {
	end := strings.IndexAny(p.rest, constraintOperators)
	if end < 0 {
		end = len(p.rest)
	}
	if end == 0 {
		return errors.New("cannot be read")
	}
	if p.features++; p.features > maxFeatures {
		return fmt.Errorf("has more than %d features", maxFeatures)
	}
	g.names = append(g.names, joined{or, p.rest[:end]})
	p.rest = p.rest[end:]
	return nil
}
