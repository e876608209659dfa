package slurm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Constraint is a job's --constraint: an expression that describes the features that the job's nodes must have. Every
// node satisfies the zero value.
//
// Package eligible evaluates constraints in the same way as slurmctld (build_feature_list in job_scheduler.c and
// valid_feature_counts in node_scheduler.c, 22.05.8 and 26.05.3). The operators & and | have the same precedence and
// are evaluated from left to right. One level of parentheses groups features. A comma is equivalent to &. If
// alternatives are in brackets ([a|b]), all of a job's nodes must satisfy the same alternative.
type Constraint struct {
	// Text is the expression as slurmctld prints it, truncated after MaxConstraintText bytes.
	Text string
	// Every node must satisfy all groups in Always and one of the groups in AnyOf, which holds the alternatives in
	// brackets.
	Always, AnyOf []FeatureGroup
	// Nodes is the largest count (*n) in the expression. A count is the number of nodes with the feature that the job
	// needs.
	Nodes int
	// Problem is the reason why the expression cannot be evaluated for a single node, or an empty string if it can.
	Problem string
}

// FeatureGroup is a feature, or several features in parentheses.
type FeatureGroup struct {
	Or       bool // true if the group is joined to the previous groups by |, false if by &
	Features []Feature
}

// Feature is a feature in a group.
type Feature struct {
	Or   bool // true if the feature is joined to the previous features by |, false if by &
	Name string
}

// MaxFeatures is the maximum number of features in an expression. It is limited because each plan checks every feature
// on every node.
const MaxFeatures = 64

// MaxConstraintText is the maximum length of an expression in messages, in bytes. A message is printed for each node,
// and users can write expressions of 100 kB.
const MaxConstraintText = 200

// ParseConstraint parses an expression. If the expression cannot be evaluated for a single node, Problem contains the
// reason.
func ParseConstraint(text string) Constraint {
	if isNull(text) {
		return Constraint{}
	}
	c := Constraint{Text: text}
	if len(text) > MaxConstraintText {
		c.Text = text[:MaxConstraintText] + "..."
	}
	p := constraintParser{rest: strings.ReplaceAll(text, ",", "&"), c: &c}
	if err := p.expression(); err != nil {
		return Constraint{Text: c.Text, Problem: err.Error()}
	}
	return c
}

// String returns the expression as slurmctld prints it, truncated after MaxConstraintText bytes.
func (c Constraint) String() string { return c.Text }

// constraintParser parses an expression from left to right. rest is the unparsed remainder. It accepts fewer
// expressions than slurmctld does: syntax that slurmctld ignores or interprets differently between releases is an
// error.
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
			p.c.Always = append(p.c.Always, g)
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

// alternatives parses [a|b], starting after the opening bracket.
func (p *constraintParser) alternatives() error {
	for {
		if strings.HasPrefix(p.rest, "(") {
			return errors.New("has parentheses in brackets")
		}
		g, count, err := p.group(false)
		if err != nil {
			return err
		}
		p.c.AnyOf = append(p.c.AnyOf, g)
		switch {
		case count > 0 && len(p.c.AnyOf) > 1,
			count > 0 && !strings.HasPrefix(p.rest, "]"),
			strings.HasPrefix(p.rest, "&"):
			return errors.New("requests different features on different nodes; use a heterogeneous job")
		case p.next("]"):
			return nil
		case !p.next("|"):
			return errors.New("cannot be read")
		}
	}
}

// group parses a feature, or several features in parentheses, and any count that follows.
func (p *constraintParser) group(or bool) (g FeatureGroup, count int, err error) {
	g.Or = or
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
	p.c.Nodes = max(p.c.Nodes, count)
	return g, count, nil
}

func (p *constraintParser) feature(g *FeatureGroup, or bool) error {
	end := strings.IndexAny(p.rest, constraintOperators)
	if end < 0 {
		end = len(p.rest)
	}
	if end == 0 {
		return errors.New("cannot be read")
	}
	if p.features++; p.features > MaxFeatures {
		return fmt.Errorf("has more than %d features", MaxFeatures)
	}
	g.Features = append(g.Features, Feature{or, p.rest[:end]})
	p.rest = p.rest[end:]
	return nil
}
