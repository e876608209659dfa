package decisions

import (
	"reflect"
	"strings"
	"testing"

	"caelum/internal/core/predict"
)

func TestParse(t *testing.T) {
	const text = "caelum-decisions 1 7\n# a comment\n\npartition gpu\npartition big 2g.10gb # and one behind a word\n" +
		"grow oom\npartition new grow=forecast\npartition old 2g.10gb grow=off\n" +
		"profile 1g.5gb 4864 14\nprofile 1g.5gb 4864 7\nprofile 1g.5gb+me\nprofile 2g.10gb 9984\n" +
		"profile 2g.10gb 9856\nprofile 2g.10gb\ndefault 2g.10gb\nwhole 1g.5gb\n" +
		"model a100 1g.5gb\nmodel a100  2g.10gb 8 # as well\nmodel b 2g.10gb 4\nmax_nodes 4\nbypass whole\n" +
		"max_cpus 64\nmax_cpus 32\n" +
		"alias a100_10g 2g.10gb\nshard 12 2g.10gb\nshard a100:1 1g.5gb\nshard 3 1g.5gb\n" +
		"per_gpu gpu 16 120000\nper_gpu big 0 0\n" +
		"key 1001:0123456789abcdef 1g.5gb+me  # train\nkey 0123456789abcdef 2g.10gb 60 # no user\n" +
		"user 1001:0123456789abcdef\t2g.10gb 3600-4100\nsite 0123456789abcdef 1g.5gb 60\n" +
		"key 7:0123456789abcdef 1g.5gb 60 0\nuser 7:0123456789abcdef 1g.5gb  60-60\t100  # busy\n" +
		"site fedcba9876543210 2g.10gb 999999998-999999999 47\nkey fedcba9876543210 2g.10gb 60 50\n" +
		"name 7:0123456789abcdef 2g.10gb 60-70 50\nowner 1001 1g.5gb # first runs\n" +
		"args 7:0123456789abcdef 2 64=1g.5gb  2000.5=1g.5gb+me *=2g.10gb # by size\n"
	want := Table{
		Partitions: []string{"gpu", "big", "new", "old"},
		Grow:       "oom",
		GrowIn:     map[string]string{"new": "forecast", "old": "off"},
		Profiles:   []Profile{{"1g.5gb", 4864, 14}, {"1g.5gb+me", 0, 0}, {"2g.10gb", 9856, 0}},
		Default:    "2g.10gb",
		Whole:      "1g.5gb",
		MaxNodes:   4,
		Bypass:     "whole",
		Models:     map[string][]string{"a100": {"1g.5gb", "2g.10gb"}, "b": {"2g.10gb"}},
		Units:      map[string]int{"2g.10gb": 8},
		Aliases:    map[string]string{"a100_10g": "2g.10gb"},
		Shards:     map[string]map[int]string{"": {12: "2g.10gb", 3: "1g.5gb"}, "a100": {1: "1g.5gb"}},
		PerGPU:     map[string]PerGPU{"gpu": {16, 120000}, "big": {}},
		MaxCPUs:    64,
		Key: map[string]predict.Line{
			"1001:0123456789abcdef": {Profile: "1g.5gb+me", Busy: -1},
			"7:0123456789abcdef":    {Profile: "1g.5gb", Seconds: 60},
		},
		OldKeys: 2,
		Full:    map[string]string{"big": "2g.10gb", "old": "2g.10gb"},
		User: map[string]predict.Line{
			"1001:0123456789abcdef": {Profile: "2g.10gb", Seconds: 3600, High: 4100, Busy: -1},
			"7:0123456789abcdef":    {Profile: "1g.5gb", Seconds: 60, High: 60, Busy: 100},
		},
		Site: map[string]predict.Line{
			"0123456789abcdef": {Profile: "1g.5gb", Seconds: 60, Busy: -1},
			"fedcba9876543210": {Profile: "2g.10gb", Seconds: 999999998, High: 999999999, Busy: 47},
		},
		Name: map[string]predict.Line{
			"7:0123456789abcdef": {Profile: "2g.10gb", Seconds: 60, High: 70, Busy: 50},
		},
		Owner: map[string]predict.Line{"1001": {Profile: "1g.5gb", Busy: -1}},
		Args: map[string]predict.Steps{"7:0123456789abcdef": {
			Position: 2, UpTo: []predict.Step{{UpTo: 64, Profile: "1g.5gb"}, {UpTo: 2000.5, Profile: "1g.5gb+me"}},
			Beyond: "2g.10gb",
		}},
	}
	if got, err := Parse(text); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	least, err := Parse("caelum-decisions 1 7\ndefault 1g.5gb\nprofile 1g.5gb\nprofile 7g.40gb\n")
	if err != nil || least.MaxNodes != 1 || least.Whole != "7g.40gb" {
		t.Errorf("%+v, %v", least, err)
	}
}

func TestNoTable(t *testing.T) {
	const head, some = "caelum-decisions 1 7\n", "profile 1g.5gb\ndefault 1g.5gb\n"
	const site, user = "site 0123456789abcdef 2g.10gb\n", "user 7:0123456789abcdef 3g.20gb\n"
	const args = "args 7:0123456789abcdef "
	for text, says := range map[string]string{
		"":                         "the first line is not",
		"caelum-decisions 2 7\n":   "the first line is not",
		"caelum-decisions 1 x\n":   "the first line is not",
		"caelum-decisions 1 7 #\n": "the first line is not",
		"caelum-decisions 1 7\r\n": "CR LF",
		head + "profile 1g.5gb": "the last line is not " +
			"complete",
		head + some + "partition\n":                                        "line 4 is not valid",
		head + some + " partition gpu\n":                                   "line 4 is not valid",
		head + some + "profile closed\n":                                   "line 4 is not valid",
		head + some + "profile 2g.10gb 0\n":                                "line 4 is not valid",
		head + some + "profile 2g.10gb 9G\n":                               "line 4 is not valid",
		head + some + "default 1g.5gb\n":                                   "line 4 is not valid",
		head + some + "whole 1g.5gb\nwhole 1g.5gb\n":                       "line 5 is not valid",
		head + some + "max_nodes many\n":                                   "line 4 is not valid",
		head + some + "max_nodes 0\nmax_nodes 3\n":                         "line 5 is not valid",
		head + some + "bypass gpu\npartition gpu\n":                        "line 4 sends jobs to a managed partition",
		head + some + "bypass off\nbypass off\n":                           "line 5 is not valid",
		head + some + "bypass a,b\n":                                       "line 4 is not valid",
		head + some + "bypass a b\n":                                       "line 4 is not valid",
		head + some + "partition a 1g.5gb b\n":                             "line 4 is not valid",
		head + some + "partition a full\n":                                 "line 4 names a profile that has no",
		head + some + "model a100\n":                                       "line 4 is not valid",
		head + some + "model a100 1g.5gb 07\n":                             "line 4 is not valid",
		head + some + "model a100 2g.10gb\n":                               "line 4 names a profile that has no",
		head + some + "profile 1g.5gb 4864 0\n":                            "line 4 is not valid",
		head + some + "profile 1g.5gb 4864 14 2\n":                         "line 4 is not valid",
		head + some + "alias a100_10g 2g.10gb\n":                           "line 4 names a profile that has no",
		head + some + "alias a100_10g\n":                                   "line 4 is not valid",
		head + some + "alias x 1g.5gb\nalias x 1g.5gb\n":                   "line 5 is not valid",
		head + some + "shard 2 2g.10gb\n":                                  "line 4 names a profile that has no",
		head + some + "shard 0 1g.5gb\n":                                   "line 4 is not valid",
		head + some + "shard 1:2 1g.5gb\n":                                 "line 4 is not valid",
		head + some + "shard a:b:2 1g.5gb\n":                               "line 4 is not valid",
		head + some + "shard 2 1g.5gb 4\n":                                 "line 4 is not valid",
		head + some + "shard a:2 1g.5gb\nshard 2 1g.5gb\nshard 2 1g.5gb\n": "line 6 is not valid",
		head + some + "per_gpu gpu 16\n":                                   "line 4 is not valid",
		head + some + "per_gpu gpu 16 -1\n":                                "line 4 is not valid",
		head + some + "per_gpu gpu 1 1 1\n":                                "line 4 is not valid",
		head + some + "per_gpu a 1 1\nper_gpu a 1 1\n":                     "line 5 is not valid",
		head + some + "max_cpus 0\n":                                       "line 4 is not valid",
		head + some + "max_cpus 64\nmax_cpus many\n":                       "line 5 is not valid",
		head + some + "key 0123 1g.5gb\n":                                  "line 4 is not valid",
		head + some + "profile 2g.10gb 1000000000\n":                       "line 4 is not valid",
		head + some + "key 0123456789abcdef 1g.5gb 1000000000\n":           "line 4 is not valid",
		head + some + "key 0123456789abcdef 1g.5gb 060\n":                  "line 4 is not valid",
		head + some + "key 0123456789abcdef 1g.5gb 60s\n":                  "line 4 is not valid",
		head + some + "key 0123456789abcdef 1g.5gb 60 101\n":               "line 4 is not valid",
		head + some + "key 7:0123456789abcdef 1g.5gb 60 101\n":             "line 4 is not valid",
		head + some + "key 7:0123456789abcdef 1g.5gb 60 -1\n":              "line 4 is not valid",
		head + some + "user 7:0123456789abcdef 1g.5gb 60 050\n":            "line 4 is not valid",
		head + some + "user 7:0123456789abcdef 1g.5gb 60 00\n":             "line 4 is not valid",
		head + some + "site 0123456789abcdef 1g.5gb 60 50%\n":              "line 4 is not valid",
		head + some + "site 0123456789abcdef 1g.5gb 0 50\n":                "line 4 is not valid",
		head + some + "site 0123456789abcdef 1g.5gb 60 50 1\n":             "line 4 is not valid",
		head + some + "site 0123456789abcdef 1g.5gb 60-59\n":               "line 4 is not valid",
		head + some + "site 0123456789abcdef 1g.5gb 60-\n":                 "line 4 is not valid",
		head + some + "site 0123456789abcdef 1g.5gb -60\n":                 "line 4 is not valid",
		head + some + "site 0123456789abcdef 1g.5gb 60-070\n":              "line 4 is not valid",
		head + some + "site 0123456789abcdef 1g.5gb 60-70-80\n":            "line 4 is not valid",
		head + some + "site 0123456789abcdef 1g.5gb 60-1000000000\n":       "line 4 is not valid",
		head + some + "site 0123456789abcdef 1g.5gb 60 50-60\n":            "line 4 is not valid",
		head + some + "profile 2g.10gb 60-70\n":                            "line 4 is not valid",
		head + some + "key 01:0123456789abcdef 1g.5gb\n":                   "line 4 is not valid",
		head + some + "key 7:0123456789ABCDEF 1g.5gb\n":                    "line 4 is not valid",
		head + some + strings.Repeat("site 0123456789abcdef 1g.5gb\n", 2):  "line 5 is not valid",
		head + some + "user 0123456789abcdef 1g.5gb\n":                     "line 4 is not valid",
		head + some + "user 01:0123456789abcdef 1g.5gb\n":                  "line 4 is not valid",
		head + some + strings.Repeat(args+"1 2=1g.5gb *=1g.5gb\n", 2):      "line 5 is not valid",
		head + some + "args 0123456789abcdef 1 2=1g.5gb *=1g.5gb\n":        "line 4 is not valid",
		head + some + args + "1 *=1g.5gb\n":                                "line 4 is not valid",
		head + some + args + "5 2=1g.5gb *=1g.5gb\n":                       "line 4 is not valid",
		head + some + args + "1 2=1g.5gb 2.0=1g.5gb *=1g.5gb\n":            "line 4 is not valid",
		head + some + args + "1 2=1g.5gb *=9g.99gb\n":                      "line 4 names a profile",
		head + some + args + "1 2=9g.99gb *=1g.5gb\n":                      "line 4 names a profile",
		head + "profile 1g.5gb\n":                                          "the default line is missing",
		head + "default 1g.5gb\n":                                          "line 2 names a profile that has no",
		head + some + "whole 7g.40gb\n":                                    "line 4 names a profile that has no",
		head + some + site + user:                                          "line 4 names a profile",
		head + some + strings.Repeat("#\n", MaxLines):                      "more than 20000 lines",
		head + some + strings.Repeat("#", MaxBytes) + "\n":                 "longer than 1048576 bytes",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60q: %v, want %q", text, err, says)
		}
	}
}
