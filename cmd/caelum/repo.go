package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"caelum/internal/config"
	"caelum/internal/controller/learn"
	"caelum/internal/controller/repo"
	"caelum/internal/core/mig"
	"caelum/internal/slurm"
	"caelum/internal/trust"
)

// repoOptions holds the flags that specify the configuration, the repository, the decision table and the GPU model.
type repoOptions struct {
	*globals
	path, table, model string
}

// addFlags adds the flags for the repository and the decision table.
func (o *repoOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.path, "repo", "", "the repository; default: the path set by the repo key in the configuration file")
	f.StringVar(&o.table, "table", "", "the decision table; default: the path set by the table key in the "+
		"configuration file")
}

func newRepo(g *globals) *cobra.Command {
	o := repoOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "repo",
		Short: "Show and maintain the repository of earlier runs",
		Long: `repo shows and maintains the repository of earlier runs, which holds the slice and the usage of each
run. Each node's agent records the runs on its own node; "caelum repo sync" copies the runs of the
whole cluster from slurmdbd into the local host's repository.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no command %q; see caelum repo --help", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o.addFlags(cmd.PersistentFlags())
	cmd.AddCommand(
		newRepoList(g, &o),
		newRepoShow(g, &o),
		newRepoExport(&o),
		newRepoImport(&o),
		newRepoForget(&o),
		newRepoSync(g, &o),
		newRepoDecisions(g, &o),
	)
	return cmd
}

// load reads the configuration. Its Repo is the path of this host's repository.
func (o repoOptions) load() (config.Config, error) {
	cfg, err := config.Load(o.config)
	cfg.Repo = repo.Find(cfg.Repo)
	return cfg, err
}

// open reads the configuration and opens the repository. A file that is not a repository is renamed if its path comes
// from caelum.yaml, and left unchanged if its path comes from --repo. If the repository does not exist, open creates it
// or, if mustExist is true, returns an error.
func (o repoOptions) open(mustExist bool) (*repo.Repo, config.Config, error) {
	cfg, err := o.load()
	if err != nil {
		return nil, cfg, err
	}
	open, path := openOwn, cfg.Repo
	if o.path != "" {
		open, path = repo.OpenAsItIs, o.path
	} else if err := becomeOwner(path); err != nil {
		return nil, cfg, err
	}
	if err := trust.Directory(path); err != nil {
		return nil, cfg, err // opening a repository writes to its directory
	}
	if _, err := os.Stat(path); mustExist && errors.Is(err, fs.ErrNotExist) {
		return nil, cfg, fmt.Errorf("the repository %s does not exist; run `caelum repo sync` to create it",
			path)
	}
	r, err := open(path)
	if err != nil {
		return nil, cfg, err
	}
	return r, cfg, nil
}

// read opens the repository for a command that does not change it. Because ordinary users are not allowed to read the
// repository, and login nodes do not have one, it falls back to the caller's own runs from slurmdbd.
func (o repoOptions) read(ctx context.Context) (*repo.Repo, config.Config, error) {
	cfg, err := o.load()
	if err != nil {
		return nil, cfg, err
	}
	if o.ownOnly(cfg) {
		r, err := ownRuns(ctx, cfg)
		return r, cfg, err
	}
	return o.open(true)
}

// ownOnly reports whether read is limited to the caller's own runs because the caller cannot use the configured
// repository.
func (o repoOptions) ownOnly(cfg config.Config) bool {
	return o.path == "" && os.Getuid() != 0 && !mayUse(cfg.Repo)
}

// learningHere returns the state of learning in this host's repository, or an empty string if the caller cannot read it
// or if no sync has read slurmdbd into it. It continues as the owner of the repository (becomeOwner).
func learningHere(cfg config.Config) string {
	path := repo.Find(cfg.Repo)
	_, err := os.Stat(path)
	if err != nil || !mayUse(path) || becomeOwner(path) != nil {
		return ""
	}
	state, err := learn.ReadState(path)
	if err != nil || state.Synced.IsZero() {
		return ""
	}
	return state.String(time.Now())
}

// mayUse reports whether the caller may read and write a file, or create it if it does not exist.
func mayUse(path string) bool {
	const readAndWrite = 6 // R_OK and W_OK of access(2)
	if err := syscall.Access(path, readAndWrite); !errors.Is(err, os.ErrNotExist) {
		return err == nil
	}
	return syscall.Access(filepath.Dir(path), readAndWrite) == nil
}

// ownRuns returns a temporary repository with the caller's own runs from slurmdbd. The kernel deletes it when this
// process ends.
func ownRuns(ctx context.Context, cfg config.Config) (*repo.Repo, error) {
	field, err := cfg.Field()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "caelum")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // the open file remains usable after its removal
	r, err := repo.OpenAsItIs(filepath.Join(dir, "own.db"))
	if err != nil {
		return nil, err
	}
	own := slurm.New(slurm.Options{Timeout: dbdTimeout}).OfUser(uint32(os.Getuid()))
	if _, err := learn.Sync(ctx, own, r, field, time.Time{}, time.Now()); err != nil {
		r.Close()
		return nil, err
	}
	fmt.Fprintln(os.Stderr, "caelum: you may not read this host's repository; this output contains only your own "+
		"runs from slurmdbd")
	return r, nil
}

// openOwn opens the configured repository and writes warnings to standard error.
func openOwn(path string) (*repo.Repo, error) {
	return repo.Open(path, func(text string) { fmt.Fprintln(os.Stderr, "caelum: "+printable(text)) })
}

// decisions returns the GPU models and the default profile for predictions: the model given by --board or, without this
// flag, the models in the decision table. If there is neither, it returns no GPU models, and caelum can predict only
// memory use and run time.
func (o repoOptions) decisions(cfg config.Config) (learn.Table, error) {
	if o.model != "" {
		b, err := modelNamed(o.model)
		if err != nil {
			return learn.Table{}, err
		}
		return learn.Table{Models: []*mig.Model{selected(b, nil)}}, nil
	}
	t, err := learn.ReadTable(o.tablePath(cfg))
	if errors.Is(err, fs.ErrNotExist) && o.table == "" {
		return learn.Table{}, nil
	}
	return t, err
}

func (o repoOptions) tablePath(cfg config.Config) string {
	if o.table != "" {
		return o.table
	}
	return cfg.Table
}

var errNoRun = errors.New("the repository has no runs")

func checkKey(key string) error {
	if key == "" || !repo.IsHash(key) {
		return usageError{
			fmt.Errorf("%q is not a job key; specify the 16 hexadecimal digits after caelum:key= in a job's "+
				"AdminComment",
				key),
		}
	}
	return nil
}
