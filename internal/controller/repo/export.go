package repo

import (
	"bufio"
	"cmp"
	"database/sql"
	"encoding/json"
	"io"

	"caelum/internal/core/predict"
	"caelum/internal/sqlite"
)

// Line is the JSON object of one run in an export. Util is -1 if the GPU does not report utilisation.
type Line struct {
	Job         uint32    `json:"job"`
	Restart     int       `json:"restart,omitempty"`
	Node        string    `json:"node"`
	Key         string    `json:"key,omitempty"`
	Fingerprint string    `json:"work,omitempty"`
	UID         uint32    `json:"uid"`
	User        string    `json:"user,omitempty"`
	Account     string    `json:"account,omitempty"`
	Name        string    `json:"name,omitempty"`
	Args        []float64 `json:"args,omitempty"`
	GPUType     string    `json:"board"`
	Profile     string    `json:"profile"`
	Slices      int       `json:"slices"`
	Start       int64     `json:"start"`
	Seconds     float64   `json:"seconds"`
	Samples     int       `json:"samples"`
	PeakMiB     float64   `json:"peak_mib"`
	MedianMiB   float64   `json:"median_mib"`
	HighMiB     float64   `json:"p95_mib"`
	Util        float64   `json:"util"`
	Processes   int       `json:"processes,omitempty"`
	State       string    `json:"state,omitempty"`
	Exit        int       `json:"exit"`
	End         string    `json:"end,omitempty"`
	ForeseenMiB float64   `json:"foreseen_mib,omitempty"`
	Xids        string    `json:"xids,omitempty"`
}

// Export writes every run as one JSON object per line, oldest first. Repositories that contain the same runs produce
// identical exports.
func (r *Repo) Export(w io.Writer) error {
	out := bufio.NewWriter(w)
	lines := json.NewEncoder(out)
	err := r.with(func(db *sqlite.DB) error {
		return db.Read(func(q *sql.DB) error {
			rows, err := q.Query("SELECT " + columns + " FROM run ORDER BY start, job, restart, node")
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var n predict.Run
				if err := rows.Scan(fields(&n)...); err != nil {
					return err
				}
				if lines.Encode(Line(n)) != nil {
					return nil // Flush returns any earlier write error
				}
			}
			return rows.Err()
		})
	})
	return cmp.Or(err, out.Flush())
}

// maxLine is the maximum length of an imported line in bytes. Valid lines are no longer than about a tenth of this.
const maxLine = 64 << 10

// Import adds all runs in an export or in a file of `caelumd observe`, or none if it returns an error. It returns the
// number of runs in the file and the number of those that were new. Errors include the line number.
func (r *Repo) Import(from io.Reader) (read, added int, err error) {
	add := func(tx *sql.Tx) error {
		a, err := newAdder(tx)
		if err != nil {
			return err
		}
		err = EachRun(from, func(run Observed) error {
			read++
			return a.add(predict.Run(run.Line))
		})
		added = a.added
		return err
	}
	// Import does not use retry, because add cannot read the input a second time.
	err = r.with(func(db *sqlite.DB) error { return db.Do(add) })
	return read, added, err
}
