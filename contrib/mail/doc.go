// Package mail tests caelum-mail, a script that appends `caelum report` to the mails that slurmctld sends when jobs
// end.
package mail
