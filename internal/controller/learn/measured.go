package learn

import (
	"encoding/json"
	"fmt"

	"caelum/internal/controller/repo"
	"caelum/internal/core/predict"
)

// Measured is a profile that `caelum profile-job --apply` chose for a key. It takes precedence over the profile that
// follows from the predicted need until a later run with this key runs out of memory.
type Measured struct {
	Profile string `json:"profile"`
	Batch   int    `json:"batch"`
	Job     uint32 `json:"job"` // the job that measured the profile
	At      int64  `json:"at"`  // the time of the choice, in Unix seconds
}

// SetMeasured stores the choice for a job's key in the repository, replacing any earlier choice. repo.ForgetKey and
// similar functions remove it together with the runs of the key.
func SetMeasured(r *repo.Repo, job repo.JobKeys, m Measured) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return r.SetNote(repo.KeyNote(job.UID, job.Key), string(text))
}

// measured returns the choice for a job's key, or nil if there is none.
func measured(r *repo.Repo, job repo.JobKeys) (*Measured, error) {
	text, err := r.Note(repo.KeyNote(job.UID, job.Key))
	if err != nil || text == "" {
		return nil, err
	}
	m := new(Measured)
	if err := json.Unmarshal([]byte(text), m); err != nil {
		return nil, fmt.Errorf("couldn't read the profile that profile-job chose for key %s: %w", job.Key, err)
	}
	return m, nil
}

// use returns the prediction p with its profile replaced by m's profile. It returns p unchanged if a run with the key
// has run out of memory since the choice, or if the profile is not in the table. h holds the runs of the key.
func (m *Measured) use(p Prediction, h predict.History, t Table) Prediction {
	for _, run := range h.Runs {
		if run.Start >= m.At && run.OutOfMemory() {
			return p
		}
	}
	for _, b := range t.Models {
		if k, ok := b.ProfileIndex(m.Profile); ok {
			p.Profile, p.Model, p.Measured = m.Profile, b, m
			p.Seconds, p.Low, p.High = p.Need.Takes(b.Profiles[k].Compute)
			return p
		}
	}
	return p
}
