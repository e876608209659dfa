package doctor

// learning checks on slurmctld's host whether the watcher can write learned lines into the decision table. It finds
// nothing if the table has such lines, or lines that decide for single scripts.
func learning(f *Facts) []Finding {
	t := f.Table
	uid, known := f.Config.SlurmUser()
	switch {
	case !f.Controller || t.Problem != "" || len(t.Key)+len(t.User)+len(t.Site) > 0:
		return nil
	case !f.Learn:
		return []Finding{note("learn is false in this host's caelum.yaml, so Caelum does not learn which profile a " +
			"job needs")}
	case known && uid != 0 && t.Folder != uid:
		return []Finding{warning(
			"Caelum does not learn which profile a job needs: the watcher cannot write "+t.Path,
			"run `systemctl enable --now caelum-watch`, or `systemctl restart caelum-watch` if it is running; its "+
				"unit moves the table to the watcher's directory",
		)}
	}
	return nil
}
