// Package ansible tests the Ansible role that installs Caelum. The Go package consists only of tests.
package ansible
