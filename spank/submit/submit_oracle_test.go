package jobsubmit

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"caelum/internal/controller/decisions"
	"caelum/internal/core/predict"
)

// This file is a second, simple and slow implementation of the rules in README.md.

// oracleTable is the table that the fuzz targets use to submit jobs. They may append learned lines to it.
const oracleTable = "caelum-decisions 1 1\npartition gpu\npartition gpu-long grow=forecast\ngrow oom\n" +
	"profile 1g.5gb 4864\nprofile 1g.5gb+me 4864\nprofile 2g.10gb 9856\nprofile 4g.20gb\nprofile 7g.40gb 40192\n" +
	"profile 1f.11gb 11389 8\nprofile 2f.22gb 22778\nprofile full 46068\nwhole 7g.40gb\n" +
	"model h100 1g.5gb\nmodel h100 4g.20gb\nmodel h100 7g.40gb\nmodel a100 1g.5gb\n" +
	"model l40s 1f.11gb 4\nmodel l40s 2f.22gb 4\nmodel l40s full\n" +
	"default 2g.10gb\nmax_nodes 2\n"

var (
	profileWord  = regexp.MustCompile(`^([0-9]+)g\.([0-9]+)gb$`)
	fractionWord = regexp.MustCompile(`^([0-9]+)f\.[0-9]+gb$`)
	sizeWord     = regexp.MustCompile(`^([0-9]{1,9})(?:([kKmMgGtT])(?:[iI]?[bB])?)?$`)
)

// lacksSlots reports whether a job in an unmanaged partition requests slices without an equal number of GPUs per node.
func lacksSlots(q fields) bool {
	named, understood, sum := false, true, 0
	node := options{}
	for _, per := range pers {
		list := entriesOf(text(q, "tres_per_"+per))
		named = named || slices.ContainsFunc(list, func(e entry) bool { return e.name == "mig" })
		_, ok := sumOf(list, "gpu", nil)
		mig, ok2 := sumOf(list, "mig", nil)
		understood = understood && ok && ok2 && (per == "node" || mig.all() == 0)
		if per == "node" {
			node["node"], sum = list, mig.all()
		}
	}
	if !understood {
		return named
	}
	return sum > 0 && !node.typed(nil)
}

// outcome is the expected outcome of a request. none is true if the job requests no GPU, foreign if it requests only
// GPUs that Caelum does not manage, and refused if the request is rejected. Otherwise, the other fields describe the
// job.
type outcome struct {
	none, foreign bool
	refused       bool
	unavailable   bool   // the request is rejected because no node has enough slices
	changed       fields // the job's fields without static MIG devices
	kept, added   []string
	cpus          string // cpus_per_tres; "" if it does not change
	minNodes      int    // 0 if it does not change
	maxNodes      int    // 0 if it does not change
	mib           int    // MiB per GPU in mem_per_tres; 0 if it does not change
	each          int    // CPUs per GPU and slice in cpus_per_tres; 0 if it does not change
	rounded       string // the message that the numbers of GPUs are rounded up
	tasksPerNode  int    // 0 if it does not change
	stamp         stamp
	sized         string  // the profile that Caelum chose; empty if the user named the profile
	by            string  // what determined sized
	onlyGrow      bool    // of Caelum's options, only --mig-grow has no effect
	grow          string  // off, oom or forecast
	insteadOf     string  // the smaller profile that the job would request without its time limit
	runs          string  // run time with its quantile, in seconds; "" if unknown
	busy          string  // busy share in percent, if the script writes it
	warning       string  // message to the user
	beyond        []write // the changes to a job that needs more nodes or CPUs than there are
	hold          bool
}

// stamp holds the values that identify the earlier runs of a job.
type stamp struct {
	uid              uint32
	key, fingerprint string // fingerprint is empty without a script
	numbers          string // of the arguments, as in the caelum:args tag
	name             string // predict.NameHash of the job's name
}

var plainNumber = regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]{1,6})?$`)

// byNumber returns the profile that the args line of a table states for a job, or "".
func byNumber(d decisions.Table, s stamp) string {
	steps, ok := d.Args[fmt.Sprintf("%d:%s", s.uid, s.key)]
	numbers := strings.FieldsFunc(s.numbers, func(r rune) bool { return r == ',' })
	if !ok || len(numbers) < steps.Position || !plainNumber.MatchString(numbers[steps.Position-1]) {
		return ""
	}
	number, _ := strconv.ParseFloat(numbers[steps.Position-1], 64)
	for _, step := range steps.UpTo {
		if number <= step.UpTo {
			return step.Profile
		}
	}
	return steps.Beyond
}

// predicted returns the profile that a table predicts for a job, or "". known is the result of learned.
func predicted(d decisions.Table, s stamp, known *predict.Line) string {
	if known == nil {
		return byNumber(d, s)
	}
	return cmp.Or(byNumber(d, s), known.Profile)
}

// learned returns the line of a table that applies to a job, or nil.
func learned(d decisions.Table, s stamp) *predict.Line {
	l, _ := match(d, s)
	return l
}

// match returns the line of a table that applies to a job, and its first word. Without such a line, it returns nil and
// "default".
func match(d decisions.Table, s stamp) (*predict.Line, string) {
	of := func(hex string) string { return fmt.Sprintf("%d:%s", s.uid, hex) }
	for _, c := range []struct {
		word    string
		lines   map[string]predict.Line
		subject string
	}{
		{"key", d.Key, of(s.key)}, {"user", d.User, of(s.fingerprint)}, {"site", d.Site, s.fingerprint},
		{"name", d.Name, of(s.name)}, {"owner", d.Owner, fmt.Sprint(s.uid)},
	} {
		if l, ok := c.lines[c.subject]; ok && (c.word == "key" || s.fingerprint != "") {
			return &l, c.word
		}
	}
	return nil, "default"
}

// busyOf returns the busy share in a line, or "" if known is nil or has no busy share.
func busyOf(known *predict.Line) string {
	if known == nil || known.Busy < 0 {
		return ""
	}
	return strconv.Itoa(known.Busy)
}

// size returns the profile that a request gets if its GRES does not name one. sized is true if `--mig` does not name
// one either. ok is false if the request is rejected. foreseen is the result of predicted.
func size(q fields, d decisions.Table, foreseen, kind string) (profile string, sized bool, warning string, ok bool) {
	mig, mem := option(q, "mig"), option(q, "mig_mem")
	has := map[string]int{}
	for _, p := range d.Profiles {
		has[p.Name] = p.MiB
	}
	if _, listed := has[mig]; !listed {
		if _, listed := has[strings.ToLower(mig)]; listed {
			mig = strings.ToLower(mig)
		}
	}
	named := mig
	switch mig {
	case "auto":
		named = ""
	case "off":
		named = cmp.Or(d.Full[text(q, "partition")], d.Whole)
	}
	if _, listed := has[named]; named != "" && !listed {
		return "", false, "", false
	}
	sized = named == "" || mig == "off"
	switch {
	case mem == "" && named != "":
		return named, sized, "", true
	case mem == "":
		return cmp.Or(foreseen, d.Default), true, "", true
	}
	m := sizeWord.FindStringSubmatch(mem)
	if m == nil || strings.Trim(m[1], "0") == "" {
		return "", false, "", false
	}
	n, _ := strconv.Atoi(m[1])
	kib := n << map[string]int{"k": 0, "": 10, "m": 10, "g": 20, "t": 30}[strings.ToLower(m[2])]
	enough := func(p string) bool { return has[p]<<10 >= kib }
	if named != "" {
		return named, sized, "", enough(named)
	}
	for _, p := range d.Profiles {
		elsewhere := fractionWord.MatchString(p.Name) && d.Models[kind] != nil &&
			!slices.Contains(d.Models[kind], p.Name)
		if enough(p.Name) && !elsewhere && p.Name != "full" && (profile == "" || p.MiB < has[profile]) {
			profile = p.Name
		}
	}
	if profile == "" && enough("full") {
		profile = "full"
	}
	if foreseen != "" && has[profile] < has[foreseen] {
		warning = fmt.Sprintf("caelum: --mig-mem=%s selects %s, but earlier runs indicate %s",
			mem, profile, foreseen)
	}
	return profile, true, warning, profile != ""
}

// sourceOf returns what determines the profile that Caelum chooses for a job. The table has no profile for several
// GPUs.
func sourceOf(q fields, d decisions.Table, s stamp) string {
	switch {
	case option(q, "mig") == "off":
		return "off"
	case option(q, "mig_mem") != "":
		return "memory"
	case byNumber(d, s) != "":
		return "args"
	}
	_, word := match(d, s)
	return word
}

// sizeMessages holds what the user learns about the source of a size.
var sizeMessages = map[string]string{
	"full":    "because the job requests several GPUs per node",
	"memory":  "the smallest slice with this memory (--mig-mem)",
	"default": "the default, because no earlier runs are known",
	"args":    "from the arguments and your earlier runs of this job",
	"key":     "from your earlier runs of this job",
	"user":    "from your earlier runs of this script",
	"site":    "from other users' runs of this script",
	"name":    "from your earlier jobs with this name",
	"owner":   "from your earlier jobs",
}

// onModel returns the profile that Caelum chose or, if the request names a GPU model that does not have it, the model's
// replacement.
func onModel(d decisions.Table, models []string, profile string) string {
	if len(models) != 1 || len(d.Models[models[0]]) == 0 {
		return profile
	}
	of := d.Models[models[0]]
	if slices.Contains(of, profile) {
		return profile
	}
	promises := func(name string) (compute, gb int) {
		if m := profileWord.FindStringSubmatch(name); m != nil {
			compute, _ = strconv.Atoi(m[1])
			gb, _ = strconv.Atoi(m[2])
		}
		return compute, gb
	}
	memory := func(name string) int {
		return d.Profiles[slices.IndexFunc(d.Profiles, func(p decisions.Profile) bool { return p.Name == name })].MiB
	}
	if compute, gb := promises(profile); compute > 0 {
		need := memory(profile)
		for _, name := range of {
			c, m := promises(name)
			fits := fractionWord.MatchString(name) && profile != d.Whole && need > 0 && memory(name) >= need
			if c >= compute && m >= gb || fits {
				return name
			}
		}
	}
	return of[len(of)-1]
}

// oracle returns the expected outcome of a job with a table. stamped is the stamp of a pending job, or nil for a
// submission.
func oracle(q fields, d decisions.Table, stamped *stamp) (o outcome) {
	shards := hasShards(q, text(q, "partition"), &d)
	if plain := requestOf(q, nil); plain.understood && !plain.asks && !shards {
		return outcome{none: true}
	}
	static, refused := "", false
	if stamped == nil {
		o.changed, static, refused = translate(q, &d, true)
		q = q.with(o.changed)
	}
	r := requestOf(q, &d)
	switch {
	case refused || !r.understood:
		return outcome{refused: true}
	case !r.asks: // a type of static MIG devices with a count of 0
		return outcome{none: stamped != nil, foreign: true}
	case r.foreign:
		return outcome{foreign: true}
	case r.unreadable():
		return outcome{refused: true}
	}
	if stamped == nil {
		shares := r.gpu["job"].all() > 0 || r.gpu["task"].all() > 0 || set(q, "ntasks_per_tres") > 0
		o.beyond = catalogueOf(q, text(q, "partition")).beyond(q, d.MaxCPUs, shares)
		if o.beyond != nil {
			return outcome{beyond: o.beyond}
		}
	}
	s, ok := r.slots(set(q, "sockets_per_node"))
	if !ok {
		return outcome{refused: true}
	}
	if o.stamp = r.stamp(q, s.perNode.all()); stamped != nil {
		o.stamp = *stamped
	}
	typed := o.checkSlices(r, s, d, static)
	known := learned(d, o.stamp)
	o.runs = runTimeOf(known)
	profile := static
	if !typed && static != "" {
		o.refused = o.refused || !slices.Contains(d.Names(), static)
	} else if !typed {
		profile = o.setSize(q, d, known, s.perNode, stamped == nil)
	}
	for _, name := range append(slices.Clone(r.mig["node"].types), profile) {
		o.refused = o.refused || s.perNode.all() > 1 && fractionWord.MatchString(name)
	}
	if m := cpusWord.FindStringSubmatch(text(q, "cpus_per_tres")); m != nil && inRange(m[3]) > 0 {
		o.cpus = m[0] + "," + m[1] + "mig" + m[2] + m[3]
	}
	nodes := o.place(q, r, s, d, profile, typed, stamped == nil)
	o.hold = q["priority"] != float64(0) && (text(q, "req_nodes") != "" || text(q, "exc_nodes") != "" ||
		text(q, "reservation") != "" || nodes > d.MaxNodes)
	return o
}

// setSize sets the fields for a job that does not name its profile with its GRES, and returns the profile. submitted is
// false for an update of a job.
func (o *outcome) setSize(q fields, d decisions.Table, known *predict.Line, gpus sum, submitted bool) string {
	kind := model(gpus.types)
	profile, sized, warning, ok := size(q, d, predicted(d, o.stamp, known), kind)
	of := d.Models[kind]
	o.refused = o.refused || !ok || !sized && len(of) > 0 && !slices.Contains(of, profile)
	o.warning = warning
	if !sized {
		return profile
	}
	o.setGrow(q, d, submitted)
	floor := onModel(d, gpus.types, profile)
	several := gpus.all() > 1 && fractionWord.MatchString(floor)
	if several {
		floor, o.warning = "full", ""
	}
	profile = o.choose(q, d, known, kind, floor)
	if several {
		o.by = "full"
	}
	return profile
}

// cpusWord matches cpus_per_tres if it states only the CPUs of each GPU.
var cpusWord = regexp.MustCompile(`^(gres[:/])gpu([:=])([0-9]{1,5})$`)

// inRange returns the value of a count, or 0 if Slurm treats the count as not set.
func inRange(digits string) int {
	n, _ := strconv.Atoi(digits)
	if n > 65533 {
		return 0
	}
	return n
}

// checkSlices sets refused if the request's numbers or profiles of slices are invalid, and returns whether the slices
// have profiles. static is the profile of static MIG devices that the request does not count per node.
func (o *outcome) checkSlices(r request, s slots, d decisions.Table, static string) (typed bool) {
	profiles := r.mig["node"]
	for _, profile := range profiles.types {
		if profile != "" {
			typed = true
			o.refused = o.refused || !slices.Contains(d.Names(), profile) || static != "" && profile != static
		}
	}
	if profiles.all() > 0 {
		o.refused = o.refused || typed && profiles.count[""] > 0 || profiles.all() != s.perNode.all() || !s.even
	}
	return typed
}

// place sets the entries and the numbers of a job whose slices have a given profile. It returns the number of nodes.
// submitted is false for an update of a job.
func (o *outcome) place(q fields, r request, s slots, d decisions.Table, profile string, typed, submitted bool) int {
	mig := r.mig["node"]
	p := placement{gpus: s.perNode, nodes: r.nodes}
	own := profile
	if typed && profile == "" {
		own = mig.types[0]
	}
	if submitted {
		o.each, o.mib = share(q, d, own)
	}
	most, cpus := mostOf(d, profile), o.each
	if m := cpusWord.FindStringSubmatch(text(q, "cpus_per_tres")); m != nil {
		cpus = inRange(m[3])
	}
	if cpus > 0 && d.MaxCPUs > 0 && mig.all() == 0 {
		most = min(most, d.MaxCPUs/cpus)
	}
	least := r.nodes
	if submitted && d.MaxCPUs > 0 {
		cpus := max(r.tasks, 1) * set(q, "cpus_per_task")
		least = max(least, (cpus+d.MaxCPUs-1)/d.MaxCPUs)
		o.unavailable = set(q, "max_nodes") > 0 && cpus > set(q, "max_nodes")*d.MaxCPUs
	}
	if submitted && mig.all() == 0 && s.total != nil {
		var ok bool
		later := strings.HasPrefix(text(q, "tres_per_job"), "gres/") // from 23.11
		h := catalogueOf(q, text(q, "partition"))
		if p, ok = r.place(s, most, least, set(q, "max_nodes"), later, h); !ok {
			o.unavailable = true
			return p.nodes
		}
	} else if submitted {
		if !typed && s.perNode.all() > most {
			o.unavailable = true
		}
		for _, name := range mig.types {
			o.unavailable = o.unavailable || typed && mig.count[name] > mostOf(d, name)
		}
	}
	if p.nodes != r.nodes {
		o.minNodes = p.nodes
	}
	o.maxNodes, o.tasksPerNode = p.maxNodes, p.tasksPerNode
	if p.perTask {
		o.grow = "off"
	}
	o.onlyGrow = option(q, "mig") != "" && mig.all() == 0 && len(o.changed) == 0
	o.kept = r.kept()
	if !p.perTask && r.gpu["node"].all() == 0 {
		o.added = p.gpus.entries()
	}
	if p.rounded {
		o.rounded = fmt.Sprintf("caelum: the job gets %s on each of %d nodes, because %s cannot be divided evenly "+
			"among them", counted(p.gpus.all()), p.nodes, counted(s.total.all()))
	}
	if !typed {
		o.added = append(o.added, fmt.Sprintf("mig:%s:%d", profile, p.gpus.all()))
	}
	return p.nodes
}

// kept returns the entries per node without the slices without a profile.
func (r request) kept() (all []string) {
	for _, e := range r.options["node"] {
		if e.name != "mig" || e.kind != "" {
			all = append(all, e.text)
		}
	}
	return all
}

func counted(gpus int) string {
	if gpus == 1 {
		return "1 GPU"
	}
	return fmt.Sprint(gpus, " GPUs")
}

// entries returns the entries that request the GPUs, without a prefix.
func (s sum) entries() (all []string) {
	for _, kind := range s.types {
		if n := s.count[kind]; kind == "" {
			all = append(all, fmt.Sprintf("gpu:%d", n))
		} else {
			all = append(all, fmt.Sprintf("gpu:%s:%d", kind, n))
		}
	}
	return all
}

// mostOf returns the largest number of slices of a profile on a node.
func mostOf(d decisions.Table, profile string) int {
	for _, p := range d.Profiles {
		if p.Name == profile && p.Most > 0 {
			return min(p.Most, 65533)
		}
	}
	return 65533
}

// grow returns the growth mode of a job with a script: off, oom or forecast. ok is false if the request is rejected.
func grow(q fields, d decisions.Table) (mode string, ok bool) {
	if mode = option(q, "mig_grow"); mode != "" {
		return mode, mode == "off" || mode == "oom" || mode == "forecast"
	}
	names := text(q, "partition")
	if names == "" {
		names = "gpu"
	}
	all := map[string]bool{}
	for name := range strings.SplitSeq(names, ",") {
		if slices.Contains(d.Partitions, name) {
			all[d.Mode(name)] = true
		}
	}
	switch {
	case all["off"] || len(all) == 0:
		return "off", true
	case all["oom"]:
		return "oom", true
	}
	return "forecast", true
}

// setGrow sets the mode of a job whose profile Caelum chose. submitted is false for an update of a job.
func (o *outcome) setGrow(q fields, d decisions.Table, submitted bool) {
	var ok bool
	if o.grow, ok = grow(q, d); !ok && submitted {
		o.refused = true
	}
	if o.stamp.fingerprint == "" {
		o.grow = "off"
	}
}

// growTag returns a blank and the tag for a mode, or "" for off.
func growTag(mode string) string {
	if mode == "off" {
		return ""
	}
	return " caelum:grow=" + mode
}

// choose sets the fields for a job whose profile Caelum chose, and returns this profile. floor is the profile that it
// would have without its time limit.
func (o *outcome) choose(q fields, d decisions.Table, known *predict.Line, kind, floor string) string {
	o.sized, o.by, o.busy = floor, sourceOf(q, d, o.stamp), busyOf(known)
	if known != nil {
		o.sized = known.InTime(floor, d.Alternatives(kind, floor), limitOf(q))
	}
	if o.sized != floor {
		o.insteadOf, o.runs = floor, predict.RunTime(known.On(o.sized))
	}
	return o.sized
}

// model returns the GPU model that a request names, or "" if it names none or several.
func model(kinds []string) string {
	if len(kinds) == 1 {
		return kinds[0]
	}
	return ""
}

// limitOf returns a job's time limit in seconds, or 0 if it has none. The partitions' limits are in fuzz.lua.
func limitOf(q fields) float64 {
	const noValue, infinite = 4294967294.0, 4294967295.0
	if own, ok := q["time_limit"].(float64); ok && own != noValue {
		if own == infinite {
			return 0
		}
		return 60 * own
	}
	names := text(q, "partition")
	if names == "" {
		names = "gpu"
	}
	least := 0.0
	for name := range strings.SplitSeq(names, ",") {
		limit := map[string]float64{"gpu": 20, "gpu-long": 50}[name]
		if limit > 0 && (least == 0 || limit < least) {
			least = limit
		}
	}
	return 60 * least
}

func runTimeOf(known *predict.Line) string {
	if known == nil {
		return ""
	}
	return predict.RunTime(known.Seconds, known.High)
}

// recorded returns the options in a job's record.
func recorded(q fields) options {
	o := options{}
	for _, per := range pers {
		o[per] = entriesOf(text(q, "record.tres_per_"+per))
	}
	return o
}

// afterwards returns the options of the job after an update and the script's writes. Up to 23.02 ("gres:"), slurmctld
// adds the types in an update to the types of the job, and ignores counts of 0.
func afterwards(q fields, got reply) options {
	o := options{}
	for _, per := range pers {
		name := "tres_per_" + per
		old := text(q, "record."+name)
		set, ok := q[name].(string)
		for _, w := range got.writes {
			switch {
			case per == "node" && w.field == "gres":
				set, ok = "gres:"+strings.ReplaceAll(w.value.(string), ",", ",gres:"), true
			case w.field == name:
				set, ok = w.value.(string), true
			}
		}
		now := entriesOf(set)
		switch {
		case !ok:
			o[per] = entriesOf(old)
		case set == "" || !strings.Contains(old, "gres:"):
			o[per] = now
		default:
			for _, e := range entriesOf(old) {
				again := func(n entry) bool { return n.name == e.name && n.kind == e.kind && n.count != 0 }
				if e.count != 0 && !slices.ContainsFunc(now, again) {
					o[per] = append(o[per], e)
				}
			}
			o[per] = append(o[per], now...)
		}
	}
	return o
}

// asks reports whether the options request a GPU or a slice. For invalid options, it returns true.
func (o options) asks(d *decisions.Table) bool {
	for _, list := range o {
		for _, name := range []string{"gpu", "mig"} {
			if s, ok := sumOf(list, name, d); !ok || s.all() > 0 {
				return true
			}
		}
	}
	return false
}

// typed reports whether the options request one typed slice per GPU slot. If a table is given, GPUs that Caelum does
// not manage need no slices.
func (o options) typed(d *decisions.Table) bool {
	for _, list := range o {
		if _, ok := sumOf(list, "gpu", d); !ok {
			return false
		}
	}
	gpu, _ := sumOf(o["node"], "gpu", d)
	if d != nil {
		gpu, _ = gpu.managed(d)
	}
	mig, ok := sumOf(o["node"], "mig", d)
	return ok && gpu.all() > 0 && gpu.all() == mig.all() && mig.count[""] == 0
}

// foreign reports whether the options are valid and request only GPUs that Caelum does not manage.
func (o options) foreign(d *decisions.Table) bool {
	any := false
	for _, list := range o {
		gpu, ok := sumOf(list, "gpu", d)
		mig, ok2 := sumOf(list, "mig", d)
		left, dropped := gpu.managed(d)
		if !ok || !ok2 || mig.all() > 0 || left.all() > 0 {
			return false
		}
		any = any || dropped
	}
	return any
}

// perTask reports whether the options request slices per task.
func (o options) perTask() bool {
	mig, ok := sumOf(o["task"], "mig", nil)
	return ok && mig.all() > 0
}

// uneven reports whether the options are those of a job whose nodes have different numbers of GPUs: slices per node, no
// GPUs per node, and GPUs per job, socket or task. If a table is given, GPUs that Caelum does not manage do not count.
func (o options) uneven(d *decisions.Table) bool {
	elsewhere := false
	for per, list := range o {
		gpu, ok := sumOf(list, "gpu", d)
		mig, ok2 := sumOf(list, "mig", d)
		if d != nil {
			gpu, _ = gpu.managed(d)
		}
		if !ok || !ok2 || (per == "node") == (mig.all() == 0) || per == "node" && gpu.all() > 0 {
			return false
		}
		elsewhere = elsewhere || gpu.all() > 0
	}
	return elsewhere
}

// enough reports whether each node has a typed slice for each GPU of an uneven job that has GPUs per task and at most
// the given number of tasks on each node.
func (o options) enough(tasksPerNode int, d *decisions.Table) bool {
	mig, _ := sumOf(o["node"], "mig", d)
	gpu, _ := sumOf(o["task"], "gpu", d)
	gpu, _ = gpu.managed(d)
	return o.uneven(d) && mig.count[""] == 0 && gpu.all() > 0 && tasksPerNode > 0 && mig.all() >= tasksPerNode*gpu.all()
}

// elsewhere reports whether the options count GPUs per job, socket or task, or are invalid.
func (o options) elsewhere() bool {
	return options{"job": o["job"], "socket": o["socket"], "task": o["task"]}.asks(nil)
}

func partitionAfter(q fields) string {
	if p, named := q["partition"].(string); named {
		return p
	}
	return text(q, "record.partition")
}

// touches reports whether the script checks an update. If the job has started, the script checks only updates of the
// GRES options and of the partition, which slurmctld also rejects.
func touches(q fields) bool {
	state, _ := q["record.job_state"].(float64)
	_, moved := q["partition"]
	for _, per := range pers {
		if _, set := q["tres_per_"+per]; set {
			return true
		}
	}
	return moved || int(state)%256 == 0
}

// ruled is the answer that the rules in README.md require.
type ruled struct {
	refused bool
	writes  []write
}

// expected returns the answer that README.md specifies for an update. known is false if it specifies none. The receiver
// holds the options that would result from the update.
func (o options) expected(q fields, d decisions.Table, s *stamp, before options) (r ruled, known bool) {
	switch held := strings.Contains(text(q, "record.admin_comment"), "caelum:held"); {
	case namesMany(q), set(q, "ntasks_per_tres") > 0,
		held && (q["priority"] == 0.0 || q["priority"] == 4294967295.0 || q["nice"] == 2147483653.0):
		return ruled{refused: true}, true
	case !before.asks(nil) && !o.asks(nil) && q["record.tres_fmt_req_str"] == nil &&
		!hasShards(q, partitionAfter(q), &d):
		return ruled{}, true
	case !touches(q):
		return ruled{}, false
	case !managed(partitionAfter(q)):
		leaves := q["partition"] != nil && managed(text(q, "record.partition"))
		return ruled{refused: leaves || reshapes(q)}, before.uneven(nil) && !sets(q)
	case before.perTask() && !sets(q):
		return ruled{refused: true}, true
	case before.uneven(&d) && !o.foreign(&d):
		return ruled{refused: sets(q) || reshapes(q) || !managed(text(q, "record.partition"))}, true
	case before.elsewhere() || o.elsewhere():
		return ruled{}, false
	case strings.Contains(text(q, "record.tres_per_node"), "gres:"): // types add up
		return ruled{}, false
	}
	after := afterUpdate(q)
	moves := q["partition"] != nil && !managed(text(q, "record.partition"))
	changed, _, invalid := translate(q, &d, false)
	outcome := oracle(after.with(changed), d, s)
	outcome.changed, outcome.refused = changed, outcome.refused || invalid
	switch {
	case outcome.none:
		return ruled{refused: before.asks(&d) || moves}, before.asks(&d)
	case (o.asks(&d) || len(changed) > 0) && hidden(q, before, &d):
		return ruled{refused: true}, true
	case outcome.foreign, !sets(q) && !moves && before.typed(&d):
		return ruled{}, true
	case outcome.refused:
		return ruled{refused: true}, true
	}
	return ruled{writes: wanted(after.with(changed), outcome)}, true
}

// sets reports whether an update sets GRES.
func sets(q fields) bool {
	return slices.ContainsFunc(pers, func(per string) bool { _, ok := q["tres_per_"+per].(string); return ok })
}

// reshapes reports whether an update changes the number of tasks, nodes or sockets.
func reshapes(q fields) bool {
	return slices.ContainsFunc([]string{
		"num_tasks", "min_nodes", "max_nodes", "ntasks_per_node", "ntasks_per_socket", "sockets_per_node",
	}, func(name string) bool { return set(q, name) > 0 })
}

var anyGPUs = regexp.MustCompile(`gres/[gm][pi][ug]`)

// hidden reports whether a job has GPUs that its options do not show.
func hidden(q fields, before options, d *decisions.Table) bool {
	return anyGPUs.MatchString(text(q, "record.tres_fmt_req_str")) && !before.asks(d)
}

// afterUpdate returns the fields of a job after an update, as far as they are relevant to its slices.
func afterUpdate(q fields) fields {
	after := fields{"partition": partitionAfter(q)}
	for name, value := range q {
		if strings.HasPrefix(name, "env.") {
			after[name] = value
		}
		name, ok := strings.CutPrefix(name, "record.")
		if ok && (strings.HasPrefix(name, "tres_per_") || name == "min_nodes" || name == "time_limit" ||
			name == "cpus_per_tres") {
			after[name] = value
		}
	}
	if limit, ok := q["time_limit"].(float64); ok && limit != 4294967294 {
		after["time_limit"] = limit
	}
	for _, name := range []string{
		"tres_per_node", "tres_per_job", "tres_per_socket", "tres_per_task", "cpus_per_tres",
	} {
		if list, ok := q[name].(string); ok {
			after[name] = list
		}
	}
	if n := set(q, "min_nodes"); n > 0 {
		after["min_nodes"] = float64(n)
	}
	return after
}
