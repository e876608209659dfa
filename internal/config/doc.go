// Package config reads caelum.yaml, the configuration of the agent and the commands.
//
// Files:
//
//	keys.go    the keys, with their defaults, valid values and descriptions
//	config.go  reads the file, and checks whether other users can change it
//	file.go    the faults and the effective settings of a file, with their lines, for `caelumd check` and `config`
//	check.go   the ranges of the values, and the errors for invalid values
package config
