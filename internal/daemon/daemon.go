package daemon

import (
	"context"
	"runtime/debug"
	"strings"
	"time"
	"unicode"

	"github.com/sirupsen/logrus"

	"caelum/internal/config"
)

// Logger returns a logger with the level and the format of the configuration.
func Logger(cfg config.Config) *logrus.Logger {
	log := logrus.New()
	level, _ := logrus.ParseLevel(cfg.LogLevel) // config.Load has checked the level
	log.SetLevel(level)
	// If colours were enabled, logrus would not quote names chosen by users.
	log.SetFormatter(&logrus.TextFormatter{DisableColors: true})
	if cfg.LogFormat == "json" {
		log.SetFormatter(&logrus.JSONFormatter{TimestampFormat: time.RFC3339Nano})
	}
	return log
}

// SaveMemory uses CPU time to reduce memory, which belongs to the jobs and to slurmctld: the heap holds at most a fifth
// as much garbage as data, and memory that a long queue needed returns to the system within a minute. SaveMemory
// returns when ctx ends.
func SaveMemory(ctx context.Context) {
	debug.SetGCPercent(20)
	every := time.NewTicker(time.Minute)
	defer every.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-every.C:
			debug.FreeOSMemory()
		}
	}
}

// Printable returns the text of an error without characters that could control a terminal. Errors can contain the
// output of Slurm's commands, which includes text chosen by users.
func Printable(err error) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' {
			return r
		}
		return '?'
	}, err.Error())
}
