package ledger

import (
	"database/sql"
	"encoding/json"
	"time"

	"caelum/internal/node/api"
	"caelum/internal/sqlite"
)

// Instance is a GPU instance that the agent created.
type Instance struct {
	GPU         string // the GPU's UUID, not its index, because indices change when a GPU is lost
	GI          int
	Profile     string
	Start, Size int // placement units
	UUID        string
	Job         uint32 // the job that holds the instance, or 0 if the instance is idle
	Stuck       bool   // true if the agent could not destroy the instance; it must not be assigned to any job
}

// Intent describes a driver call that the agent was about to make.
type Intent struct {
	ID          int64
	Op          string // OpCreate or OpDestroy
	GPU         string
	GI          int // the instance's id, for OpDestroy
	Profile     string
	Start, Size int
	Job         uint32
}

// These constants are the values of Intent.Op.
const (
	OpCreate  = "create"
	OpDestroy = "destroy"
)

// Ledger is an open database. Its methods are safe for concurrent use, and the errors that they return include the path
// and a remedy.
type Ledger struct{ db *sqlite.DB }

// Close closes the database.
func (l *Ledger) Close() error { return l.db.Close() }

// Meta returns the value that SetMeta stored under key, such as the boot id, or an empty string if there is none.
func (l *Ledger) Meta(key string) (string, error) {
	var v string
	err := l.db.Read(func(q *sql.DB) error {
		err := q.QueryRow("SELECT value FROM meta WHERE key = ?", key).Scan(&v)
		if err == sql.ErrNoRows {
			return nil
		}
		return err
	})
	return v, err
}

// SetMeta stores a value under key. If the value is already stored, nothing is written, so that an agent can start on a
// full disk.
func (l *Ledger) SetMeta(key, value string) error {
	if has, err := l.Meta(key); err == nil && has == value && value != "" {
		return nil
	}
	return l.db.Exec(
		"INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
		key,
		value,
	)
}

// Writable tests whether the ledger can be written to. It returns the error if it cannot.
func (l *Ledger) Writable() error {
	return l.SetMeta("tried", time.Now().Format(time.RFC3339Nano))
}

// Clear removes all instances, leases, intents, former users and Xid errors. The agent calls it after a reboot, which
// destroys all instances, ends all jobs and resets the GPUs.
func (l *Ledger) Clear() error {
	return l.db.Exec("DELETE FROM instance; DELETE FROM lease; DELETE FROM intent; DELETE FROM former; " +
		"DELETE FROM meta WHERE key LIKE 'xid %'")
}

// Instances returns the instances that the agent created.
func (l *Ledger) Instances() ([]Instance, error) {
	return query(
		l,
		"SELECT gpu, gi, profile, start, size, uuid, job, stuck FROM instance ORDER BY gpu, start",
		func(r *sql.Rows) (i Instance, err error) {
			err = r.Scan(&i.GPU, &i.GI, &i.Profile, &i.Start, &i.Size, &i.UUID, &i.Job, &i.Stuck)
			return
		},
	)
}

// Leases returns all leases that have not yet been released.
func (l *Ledger) Leases() ([]api.Lease, error) {
	return query(l, "SELECT lease FROM lease ORDER BY job", func(r *sql.Rows) (lease api.Lease, err error) {
		var text []byte
		if err = r.Scan(&text); err == nil && json.Unmarshal(text, &lease) != nil {
			err = sqlite.ErrDamaged
		}
		return
	})
}

// Former is the last user of a GPU instance id. The record remains after the instance is destroyed, because the user's
// processes may still have its files open.
type Former struct {
	GPU string
	GI  int
	UID uint32
}

// FormerUsers returns the last user of each GPU instance id since the last boot.
func (l *Ledger) FormerUsers() ([]Former, error) {
	return query(l, "SELECT gpu, gi, uid FROM former", func(r *sql.Rows) (f Former, err error) {
		err = r.Scan(&f.GPU, &f.GI, &f.UID)
		return
	})
}

// Intents returns the intents that have not been settled.
func (l *Ledger) Intents() ([]Intent, error) {
	return query(
		l,
		"SELECT id, op, gpu, gi, profile, start, size, job FROM intent ORDER BY id",
		func(r *sql.Rows) (i Intent, err error) {
			err = r.Scan(&i.ID, &i.Op, &i.GPU, &i.GI, &i.Profile, &i.Start, &i.Size, &i.Job)
			return
		},
	)
}

// Begin writes an intent and returns its id.
func (l *Ledger) Begin(i Intent) (id int64, err error) {
	err = l.db.Do(func(tx *sql.Tx) error {
		r, err := tx.Exec("INSERT INTO intent (op, gpu, gi, profile, start, size, job) VALUES (?, ?, ?, ?, ?, ?, ?)",
			i.Op, i.GPU, i.GI, i.Profile, i.Start, i.Size, i.Job)
		if err != nil {
			return err
		}
		id, err = r.LastInsertId()
		return err
	})
	return id, err
}

const insertInstance = "INSERT OR REPLACE INTO instance (gpu, gi, profile, start, size, uuid, job, stuck) " +
	"VALUES (?, ?, ?, ?, ?, ?, ?, ?)"

// Created writes a new instance and settles the intent to create it.
func (l *Ledger) Created(intent int64, i Instance) error {
	return l.db.Do(func(tx *sql.Tx) error {
		if _, err := tx.Exec(insertInstance,
			i.GPU, i.GI, i.Profile, i.Start, i.Size, i.UUID, i.Job, i.Stuck); err != nil {
			return err
		}
		return drop(tx, intent)
	})
}

// Destroyed removes an instance and settles the intent to destroy it.
func (l *Ledger) Destroyed(intent int64, gpu string, gi int) error {
	return l.db.Do(func(tx *sql.Tx) error {
		if _, err := tx.Exec("DELETE FROM instance WHERE gpu = ? AND gi = ?", gpu, gi); err != nil {
			return err
		}
		return drop(tx, intent)
	})
}

// Failed settles the intent of a driver call that changed nothing.
func (l *Ledger) Failed(intent int64) error {
	return l.db.Do(func(tx *sql.Tx) error { return drop(tx, intent) })
}

func drop(tx *sql.Tx, intent int64) error {
	_, err := tx.Exec("DELETE FROM intent WHERE id = ?", intent)
	return err
}

// SetStuck records whether an instance is stuck, that is, whether the agent could not destroy it.
func (l *Ledger) SetStuck(gpu string, gi int, stuck bool) error {
	return l.db.Exec("UPDATE instance SET stuck = ? WHERE gpu = ? AND gi = ?", stuck, gpu, gi)
}

// Forget removes an instance that is no longer on the GPU.
func (l *Ledger) Forget(gpu string, gi int) error {
	return l.db.Exec("DELETE FROM instance WHERE gpu = ? AND gi = ?", gpu, gi)
}

// Relabel atomically changes the profile, start and size of instances.
func (l *Ledger) Relabel(moved []Instance) error {
	return l.db.Do(func(tx *sql.Tx) error {
		for _, i := range moved {
			if _, err := tx.Exec("UPDATE instance SET profile = ?, start = ?, size = ? WHERE gpu = ? AND gi = ?",
				i.Profile, i.Start, i.Size, i.GPU, i.GI); err != nil {
				return err
			}
		}
		return nil
	})
}

// Grant atomically records a lease and assigns the held instances to its job.
func (l *Ledger) Grant(lease api.Lease, held []Instance) error {
	text, err := json.Marshal(lease)
	if err != nil {
		return err
	}
	return l.db.Do(func(tx *sql.Tx) error {
		if _, err := tx.Exec(insertLease, lease.Job, lease.Restart, string(text)); err != nil {
			return err
		}
		for _, i := range held {
			const assign = "UPDATE instance SET job = ? WHERE gpu = ? AND gi = ?"
			if _, err := tx.Exec(assign, lease.Job, i.GPU, i.GI); err != nil {
				return err
			}
			if _, err := tx.Exec(insertFormer, i.GPU, i.GI, lease.UID); err != nil {
				return err
			}
		}
		return nil
	})
}

const (
	insertLease  = "INSERT OR REPLACE INTO lease VALUES (?, ?, ?)"
	insertFormer = "INSERT OR REPLACE INTO former VALUES (?, ?, ?)"
)

// Recover atomically records a lost lease and the instances that its job holds.
func (l *Ledger) Recover(lease api.Lease, held []Instance) error {
	text, err := json.Marshal(lease)
	if err != nil {
		return err
	}
	return l.db.Do(func(tx *sql.Tx) error {
		for _, i := range held {
			if _, err := tx.Exec(insertInstance,
				i.GPU, i.GI, i.Profile, i.Start, i.Size, i.UUID, lease.Job, i.Stuck); err != nil {
				return err
			}
			if _, err := tx.Exec(insertFormer, i.GPU, i.GI, lease.UID); err != nil {
				return err
			}
		}
		_, err := tx.Exec(insertLease, lease.Job, lease.Restart, string(text))
		return err
	})
}

// Complete replaces a recovered lease with the same lease in which no field is missing.
func (l *Ledger) Complete(lease api.Lease) error {
	text, err := json.Marshal(lease)
	if err != nil {
		return err
	}
	return l.db.Exec("UPDATE lease SET lease = ? WHERE job = ? AND restart = ?",
		string(text), lease.Job, lease.Restart)
}

// Release atomically removes a job's lease and marks its instances as idle.
func (l *Ledger) Release(job uint32) error {
	return l.db.Do(func(tx *sql.Tx) error {
		if _, err := tx.Exec("UPDATE instance SET job = 0 WHERE job = ?", job); err != nil {
			return err
		}
		_, err := tx.Exec("DELETE FROM lease WHERE job = ?", job)
		return err
	})
}

func query[T any](l *Ledger, text string, row func(*sql.Rows) (T, error)) (all []T, err error) {
	err = l.db.Read(func(q *sql.DB) (err error) {
		all, err = sqlite.List(q, row, text)
		return err
	})
	return all, err
}
