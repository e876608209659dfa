package jobreport

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"caelum/internal/cli/gpuhours"
	"caelum/internal/core/tags"
	"caelum/internal/slurm"
)

// Saved compares the slices of a period's jobs with the whole GPUs that the same jobs would have taken.
type Saved struct {
	Total Savings   `json:"total"`
	Users []Savings `json:"users"` // those who saved most come first
	Days  []Savings `json:"days"`  // the GPU-hours of each day, or of several days; the other fields are 0
	// Sizes shows how often the jobs' sizes were right, by what determined them. Most frequent sources come first.
	Sizes []Sizes `json:"sizes"`
	// Rerun is the number of the OutOfMemory jobs that Caelum reran on a larger slice.
	Rerun int `json:"rerun"`
	// TooLargeHours is the part of Total.SliceHours that belongs to the TooLarge jobs.
	TooLargeHours float64 `json:"too_large_gpu_hours"`
	// Unknown is the number of runs that Saved omits, because their slices' share of a GPU is unknown.
	Unknown int `json:"unknown_runs,omitempty"`
}

// Savings are the figures of a user, of a day or of all jobs.
type Savings struct {
	Name string `json:"name,omitempty"` // the user, or the date of the first day
	Jobs int    `json:"jobs,omitempty"` // jobs that held slices
	// WholeHours is the number of GPUs that the runs asked for, multiplied by their run time in hours. A run that ended
	// because its slice was too small does not count, because it would not have been necessary on a whole GPU. In
	// SliceHours, each slice of every run counts as the fraction of the GPU that it occupied.
	WholeHours float64 `json:"whole_gpu_hours"`
	SliceHours float64 `json:"slice_gpu_hours"`
	// OutOfMemory counts the jobs that ran out of GPU memory, or that Caelum requeued before they did.
	OutOfMemory int `json:"out_of_memory,omitempty"`
	TooLarge    int `json:"too_large,omitempty"` // jobs whose peak fits into a smaller profile
}

// Sizes are the figures of the jobs whose sizes have the same source. Jobs whose need is unknown count only in Jobs.
type Sizes struct {
	By        string `json:"by"` // tags.By, or empty if the user named the profile
	Jobs      int    `json:"jobs"`
	WellSized int    `json:"well_sized"`
	TooSmall  int    `json:"too_small"` // the job ran out of memory, or was requeued before
	TooLarge  int    `json:"too_large"`
}

// Saves returns the number of GPU-hours that the slices left to other jobs. It is negative if they took more than whole
// GPUs would have.
func (s Savings) Saves() float64 { return s.WholeHours - s.SliceHours }

func (s *Savings) add(r gpuhours.Run) {
	if !r.Outgrown || r.GPUSeconds >= r.SliceSeconds { // a whole GPU would not have been larger
		s.WholeHours += r.SliceSeconds / 3600
	}
	s.SliceHours += r.GPUSeconds / 3600
}

// maxDays is the maximum number of elements of Saved.Days. In a longer period, each of them covers several days.
const maxDays = 31

// NewSaved returns the figures for the jobs that held slices between the times from and to. A day begins at midnight in
// from's time zone. Whole GPUs on nodes that Caelum does not manage are omitted.
func NewSaved(d Data, from, to time.Time) Saved {
	observed := gpuhours.Observe(d.Records)
	s := Saved{Users: []Savings{}, Days: []Savings{}, Sizes: []Sizes{}}
	hours, users, sizes := map[uint32]float64{}, map[string]*Savings{}, map[string]*Sizes{}
	for _, r := range known(observed.Hours(d.Records, from, to), &s.Unknown) {
		if users[r.User] == nil {
			users[r.User] = &Savings{Name: r.User}
		}
		users[r.User].add(r)
		s.Total.add(r)
		hours[r.Job] += r.GPUSeconds / 3600
	}
	for _, j := range jobs(d) {
		of, used := users[j.User], hours[j.raw]
		if of == nil || used == 0 {
			continue
		}
		of.Jobs++
		s.Total.Jobs++
		again := len(j.Growths) > 0 || slices.ContainsFunc(j.Earlier, func(e Earlier) bool { return e.End != "" })
		if again {
			s.Rerun++
		}
		by := tags.Value(j.comment, tags.By)
		if sizes[by] == nil {
			sizes[by] = &Sizes{By: by}
		}
		sizes[by].Jobs++
		topic := size(j, d)[0].Topic
		if again || j.outOfMemory() {
			of.OutOfMemory++
			s.Total.OutOfMemory++
			topic = TooSmall
		}
		switch topic {
		case TooLarge:
			of.TooLarge++
			s.Total.TooLarge++
			s.TooLargeHours += used
			sizes[by].TooLarge++
		case TooSmall:
			sizes[by].TooSmall++
		case WellSized:
			sizes[by].WellSized++
		}
	}
	for _, by := range slices.Sorted(maps.Keys(sizes)) {
		s.Sizes = append(s.Sizes, *sizes[by])
	}
	slices.SortStableFunc(s.Sizes, func(a, b Sizes) int { return cmp.Compare(b.Jobs, a.Jobs) })
	for _, name := range slices.Sorted(maps.Keys(users)) {
		s.Users = append(s.Users, *users[name])
	}
	slices.SortStableFunc(s.Users, func(a, b Savings) int { return cmp.Compare(b.Saves(), a.Saves()) })
	s.days(observed, d.Records, from, to)
	return s
}

// known returns the runs on slices whose share of a GPU is known, and counts the others in unknown.
func known(runs []gpuhours.Run, unknown *int) []gpuhours.Run {
	return slices.DeleteFunc(runs, func(r gpuhours.Run) bool {
		if !r.Outside && len(r.Unknown) > 0 {
			*unknown++
		}
		return r.Outside || len(r.Unknown) > 0
	})
}

// days sets s.Days.
func (s *Saved) days(observed gpuhours.Observed, records []slurm.Allocation, from, to time.Time) {
	each := 1 + max(int(to.Sub(from).Hours()/24)-1, 0)/maxDays
	for from.Before(to) {
		next := time.Date(from.Year(), from.Month(), from.Day()+each, 0, 0, 0, 0, from.Location())
		if next.After(to) {
			next = to
		}
		day := Savings{Name: from.Format(time.DateOnly)}
		var of []slurm.Allocation
		for _, r := range records {
			if !r.Start.IsZero() && !r.Start.After(next) && !firstOf(r.End, to).Before(from) {
				of = append(of, r)
			}
		}
		ignored := 0
		for _, r := range known(observed.Hours(of, from, next), &ignored) {
			day.add(r)
		}
		s.Days = append(s.Days, day)
		from = next
	}
}
