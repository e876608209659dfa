package slurm

import (
	"context"
	"errors"
)

// ErrorClass classifies an error that occurred when an agent queried slurmctld about a job. It determines how the job's
// prolog handles the error.
type ErrorClass int

const (
	NoError ErrorClass = iota
	Unclear            // the job's record is inconsistent or unreadable, which any user can cause
	Later              // slurmctld does not answer, which is not a fault of the node
	Defect             // this node cannot query slurmctld
)

// ClassOf returns the class of an error. No other function classifies errors. An unknown error belongs to the class
// Unclear, so that it affects only the job and not the node.
func ClassOf(err error) ErrorClass {
	switch {
	case err == nil:
		return NoError
	case errors.Is(err, ErrCommand):
		return Defect
	case errors.Is(err, ErrUnreachable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Later
	}
	return Unclear
}
