// Package ansible tests the Ansible role that installs Caelum. It contains only tests.
package ansible
