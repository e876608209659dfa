package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/core/mig"
)

// The functions in this file are shared by the profiles and simulate commands. They find GPU models and profiles by
// name, and print tables.

// tablesHelp is the part of the help texts that explains GPU model names.
const tablesHelp = `The command uses Caelum's tables of GPU models, so it needs neither an agent nor a GPU. "caelum
profiles" lists the models. BOARD is the name of a model, or the beginning of a name that matches
only one model (A30, h200). To see the profiles that a node's driver reports, run "caelum
slurm-config" on that node. A GPU without MIG, such as L40S-48GB, has only the full profile;
L40S-48GB/4 divides its memory into four units (fractions).`

// profilesHelp describes the --profiles flag.
const profilesHelp = "profiles to use; \"all\" means every profile; default: the profiles without variants (+me, ...)"

// modelNamed finds a GPU model in the tables by its name, the beginning of its name, its Type in gres.conf, or its NVML
// name. Case is ignored. If several models match, the error lists them.
func modelNamed(name string) (*mig.Model, error) {
	b, err := mig.ModelByName(name)
	if err == nil {
		return b, nil
	}
	var matching []*mig.Model
	var names []string
	name, units, divided := strings.Cut(name, "/") // L40S/4
	for _, b := range mig.EveryModel() {
		begins := name != "" && strings.HasPrefix(strings.ToLower(b.Name), strings.ToLower(name))
		if begins || strings.EqualFold(b.Type, name) || strings.EqualFold(b.Device, name) {
			matching = append(matching, b)
			names = append(names, b.Name)
		}
	}
	switch len(matching) {
	case 0:
		return nil, usageError{err}
	case 1:
		if !divided {
			return matching[0], nil
		}
		if b, err = mig.ModelByName(matching[0].Name + "/" + units); err != nil {
			return nil, usageError{err}
		}
		return b, nil
	}
	return nil, usageError{fmt.Errorf("GPU model %q is ambiguous; specify %s", name, strings.Join(names, " or "))}
}

// selected returns a copy of b that contains only the profiles given by --profiles. By default, it omits the variants;
// with "all", it keeps every profile. Names that are not in b are ignored, because they may belong to another GPU model
// in the cluster; checkProfiles detects names that are not in any model.
func selected(b *mig.Model, names []string) *mig.Model {
	return b.Select(func(p mig.Profile) bool {
		switch {
		case len(names) == 0:
			return mig.Plain(p)
		case slices.Equal(names, []string{"all"}):
			return true
		}
		return slices.Contains(names, p.Name)
	})
}

// checkProfiles returns an error if --profiles names a profile that is not in any of the models.
func checkProfiles(names []string, models ...*mig.Model) error {
	if len(names) == 0 || slices.Equal(names, []string{"all"}) {
		return nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(models, func(b *mig.Model) bool { _, ok := b.ProfileIndex(name); return ok }) {
			return usageError{
				fmt.Errorf("--profiles: there is no profile %q; %s", name, strings.Join(everyProfile(models), "; ")),
			}
		}
	}
	return nil
}

// everyProfile lists the profiles of each distinct GPU model, for an error message.
func everyProfile(models []*mig.Model) []string {
	var all []string
	for _, b := range models {
		if line := b.Name + " has " + strings.Join(profileNames(b), ", "); !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	return all
}

func profileNames(b *mig.Model) []string {
	var names []string
	for _, p := range b.Profiles {
		names = append(names, p.Name)
	}
	return names
}

// number formats a count from the tables of GPU models. A negative count means that the number is unknown, and is shown
// as "-".
func number(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// rows prints a table. Column k is right-aligned if right[k] is true.
func rows(w io.Writer, right []bool, table [][]string) {
	width := make([]int, len(right))
	for _, row := range table {
		for k, cell := range row {
			width[k] = max(width[k], len(cell))
		}
	}
	for _, row := range table {
		var s strings.Builder
		for k, cell := range row {
			pad := strings.Repeat(" ", width[k]-len(cell))
			if right[k] {
				cell = pad + cell
			} else {
				cell += pad
			}
			s.WriteString(cell + "  ")
		}
		fmt.Fprintln(w, strings.TrimRight(s.String(), " "))
	}
}
