// Package config reads caelum.yaml, the configuration of the agent and of the commands.
//
// Files:
//
//	config.go  the keys, their defaults, reading the file, the check of the file's owner
//	check.go   the ranges of the values, and the error texts
package config
