// Package ansible tests the Ansible role that installs Caelum. The Go package has only tests.
package ansible
