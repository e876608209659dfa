// Package ansible tests the Ansible role that installs Caelum. The Go package contains only tests.
package ansible
