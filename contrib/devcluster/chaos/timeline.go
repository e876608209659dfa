package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

// event is an entry in the timeline.
type event struct {
	at   time.Time
	text string
}

func (e event) String() string { return e.at.Format("15:04:05.000 ") + e.text }

// timeline records the campaign's actions and observations in order.
type timeline struct {
	mu     sync.Mutex
	events []event
	print  bool
}

func (l *timeline) add(format string, args ...any) {
	e := event{time.Now(), fmt.Sprintf(format, args...)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	if l.print {
		fmt.Fprintln(os.Stderr, e)
	}
}

// around returns the events within the given durations before and after the given time.
func (l *timeline) around(at time.Time, before, after time.Duration) (some []event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.at.After(at.Add(-before)) && e.at.Before(at.Add(after)) {
			some = append(some, e)
		}
	}
	return some
}

// round returns the fault events of the round to which the given time belongs.
func (l *timeline) round(at time.Time) (some []event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		switch {
		case e.at.After(at):
			return some
		case strings.HasPrefix(e.text, "round "):
			some = nil
		case strings.HasPrefix(e.text, "fault "):
			some = append(some, e)
		}
	}
	return some
}

// finding describes a violation of a rule.
type finding struct {
	at   time.Time
	rule string
	text string
}

// The name of each rule begins with its number in README.md.
const (
	ruleTwice  = "1 slice with two jobs"
	ruleLeft   = "2 remains of jobs"
	ruleCounts = "3 counts"
	ruleWaits  = "4 waits even though the GPUs have room"
	ruleEnds   = "5 unexplained end"
	ruleNodes  = "6 node not up"
	ruleTools  = "7 command failed"
)

// findings collects findings and discards duplicates.
type findings struct {
	mu     sync.Mutex
	all    []finding
	ignore *regexp.Regexp
}

func (f *findings) add(l *timeline, rule, format string, args ...any) {
	one := finding{time.Now(), rule, fmt.Sprintf(format, args...)}
	if f.ignore != nil && f.ignore.MatchString(one.text) {
		l.add("ignored: %s: %s", one.rule, one.text)
		return
	}
	f.mu.Lock()
	for _, old := range f.all {
		if old.rule == one.rule && old.text == one.text {
			f.mu.Unlock()
			return
		}
	}
	f.all = append(f.all, one)
	f.mu.Unlock()
	l.add("FINDING %s: %s", one.rule, one.text)
}

func (f *findings) list() []finding {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]finding(nil), f.all...)
}
