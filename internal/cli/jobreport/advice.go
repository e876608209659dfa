package jobreport

// Advice is one piece of advice for the job's next submission.
type Advice struct {
	Topic Topic  `json:"topic"`
	Job   string `json:"job,omitempty"` // the component of a het job
	Text  string `json:"text"`
	// Paste contains lines to add to the job's script, or a command to run.
	Paste []string `json:"paste,omitempty"`
}

// Topic is the subject of a piece of advice, worded to fit into a table.
type Topic string

// These constants are the topics, in the order in which a report lists them.
const (
	NotEnded    Topic = "not ended"     // the job is pending or running
	NotMeasured Topic = "not measured"  // the job has ended, and its GPU usage is unknown
	OutOfMemory Topic = "out of memory" // the GPU memory, or the host's memory, was insufficient
	TooSmall    Topic = "too small"     // the job completed only because its slice was larger than requested
	TooLarge    Topic = "too large"     // a smaller profile is sufficient
	WellSized   Topic = "well sized"    // nothing to do
	Unclear     Topic = "unclear"       // the run does not show which profile is sufficient
	Requeued    Topic = "requeued"      // the job ran several times
	TimeLimit   Topic = "time limit"    // the job reached its time limit, or used only a small part of it
)

// advise returns the advice on a job. The result is never empty.
func advise(j Job, d Data) []Advice {
	all := size(j, d)
	all = append(all, requeues(j)...)
	return append(all, timeLimit(j)...)
}
