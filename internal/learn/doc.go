// Package learn brings what slurmdbd knows of earlier runs into a repository (Sync), and what a repository predicts
// into the decision table (Write).
//
// Either may be done at any time, by anybody who may read and write the files, and as often as wanted: a sync that
// finds nothing new changes nothing, and a table that would say the same is not touched. Nothing that a job waits for
// depends on them.
package learn
