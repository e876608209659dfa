// Package mail contains caelum-mail, a script that appends `caelum report` to the mails that slurmctld sends at the end
// of jobs. The package contains only the script's tests.
package mail
