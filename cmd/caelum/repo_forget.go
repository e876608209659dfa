package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"caelum/internal/controller/repo"
)

type forgetOptions struct{ key, user, before string }

func newRepoForget(o *repoOptions) *cobra.Command {
	var f forgetOptions
	cmd := &cobra.Command{
		Use:   "forget (--key KEY [--user USER] | --user USER | --before TIME)",
		Short: "Delete the runs of a key or a user, or all runs before a given time",
		Long: `forget deletes the runs of a key or of a user that have already begun, or all runs that began before
a given time. "caelum repo sync" and "caelum repo import" will not add them again, but will add runs
that begin later. Only this repository is changed; the runs remain in other repositories and in
slurmdbd.`,
		Example: `  caelum repo forget --key 16e6c08ad68451a8   # the script has changed
  caelum repo forget --before 2026-01-01`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			before, err := f.check()
			if err != nil {
				return err
			}
			r, _, err := o.open(true)
			if err != nil {
				return err
			}
			defer r.Close()
			n, err := f.forget(r, before)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "deleted %s\n", plural(n, "run"))
			return err
		},
	}
	cmd.Flags().StringVar(&f.key, "key", "",
		"delete the runs with this key, for all users or only for the user given by --user")
	cmd.Flags().StringVar(&f.user, "user", "", "delete the runs of the user with this name or id")
	cmd.Flags().StringVar(&f.before, "before", "",
		"delete the runs that began before this time: 2026-11-21, or 2026-11-21T04:57:35")
	return cmd
}

// check returns the time given by --before, or the zero time if this flag is not given. It returns an error if the
// flags have invalid values or cannot be combined.
func (f forgetOptions) check() (time.Time, error) {
	switch {
	case (f.key != "" || f.user != "") == (f.before != ""):
		return time.Time{}, usageError{errors.New("specify --key, --user or both, or specify only --before")}
	case f.key != "":
		return time.Time{}, checkKey(f.key)
	case f.before == "":
		return time.Time{}, nil
	}
	before, err := readTime(f.before)
	if err == nil && before.After(time.Now()) {
		err = usageError{fmt.Errorf("--before %s is in the future; specify a time in the past, because the repository "+
			"would reject new runs until the specified time", f.before)}
	}
	return before, err
}

// forget deletes the runs that the flags select and returns the number of deleted runs. The argument before is the time
// given by --before.
func (f forgetOptions) forget(r *repo.Repo, before time.Time) (all int, err error) {
	now := time.Now()
	switch {
	case f.user == "" && f.key == "":
		return r.ForgetBefore(before)
	case f.user == "":
		return r.ForgetKey(f.key, now)
	}
	uids, err := usersNamed(r, f.user)
	for _, uid := range uids {
		var n int
		if err == nil && f.key != "" {
			n, err = r.ForgetKeyOf(uid, f.key, now)
		} else if err == nil {
			n, err = r.ForgetUser(uid, now)
		}
		all += n
	}
	return all, err
}

// usersNamed returns the ids of the users with the given name that have runs. If the name is a number, the result also
// includes this number.
func usersNamed(r *repo.Repo, name string) ([]uint32, error) {
	uids, err := r.Users(name)
	if id, bad := strconv.ParseUint(name, 10, 32); bad == nil {
		uids = append(uids, uint32(id))
	}
	if err == nil && len(uids) == 0 {
		err = fmt.Errorf("%w of a user %q", errNoRun, name)
	}
	return uids, err
}
