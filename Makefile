# The Makefile builds, tests and installs Caelum. The most important targets:
#
#   make demo    runs 24 unchanged scripts on a private Slurm cluster with emulated GPUs, and prints their slices
#   make test    runs every check: lint, unit tests, the plugin's harness, a real Slurm cluster, five minutes of chaos
#   make check   runs lint and the shorter forms of the unit tests
#   make test-matrix    runs the tests that depend on Slurm, on three Slurm releases or on those in RELEASES, and the
#                       packages' tests
#   make mixed   upgrades a cluster to a newer Slurm release while jobs run, and tests nodes older than slurmctld
#
# make demo and make test install missing Debian packages and Go modules. Go 1.26 must already be installed.

B       := $(CURDIR)/build
GO      ?= go
PREFIX  ?= /usr
# The go-nvml bindings call functions that NVIDIA has deprecated. This flag disables the C compiler's warnings about
# them.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations
# VERSION consists of the last tag, such as v0.9.0 or v0.9.0-rc1, and the number of commits since then. Without a tag,
# it is a release candidate of FIRST_RELEASE with the total number of commits, so that the release itself has a higher
# version. No version is 1.0.0 or higher before `caelumd qualify` has run on real hardware.
FIRST_RELEASE := 0.9.0
VERSION ?= $(shell (git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || \
	echo v$(FIRST_RELEASE)-rc0-$$(git rev-list --count HEAD)-g$$(git describe --always --dirty --match none)) | sed 's/^v//')
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# PROGRAMS lists the programs in Go.
PROGRAMS := caelum caelumd caelum-watch
# SOURCE_DATE_EPOCH sets the date that goes into generated files.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
LDFLAGS := -X caelum/internal/version.Version=$(VERSION) -X caelum/internal/version.Commit=$(COMMIT)

# With SLURM=24.11, make runs a target in a root directory with Slurm 24.11 (contrib/devcluster/README.md).
ifdef SLURM
.PHONY: all demo test check bench chaos unit e2e units release-test upgrade-test
all demo test check bench chaos unit e2e units release-test upgrade-test:
	contrib/devcluster/release $(SLURM) make $@ $(MAKEOVERRIDES) SLURM=

# Builds the plugin's package for the Slurm release SLURM, in the same directory as the packages for this machine's
# release. The upgrade-test target needs all of them in the root directory.
.PHONY: packages
packages:
	mkdir -p $(B)/packages
	contrib/devcluster/release $(SLURM) make packages PACKAGES=caelum-spank VERSION=$(VERSION) COMMIT=$(COMMIT) \
		SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(MAKEOVERRIDES) SLURM= >&2
	contrib/devcluster/release $(SLURM) tar -C build/packages -c . | tar -C $(B)/packages -x
	tar -C $(B)/packages -c . | contrib/devcluster/release $(SLURM) tar -C build/packages -x
else

.PHONY: all demo test test-matrix release-test upgrade-test mixed check bench chaos learn fuzz unit race norace e2e units lint prerequisites install clean FORCE
all: $(PROGRAMS:%=$(B)/%) plugin emulator

prerequisites:
	@command -v $(GO) >/dev/null || { echo "couldn't find $(GO); install Go 1.26, or set GO to its path"; exit 1; }
	@contrib/devcluster/prerequisites

$(PROGRAMS:%=$(B)/%): $(B)/%: FORCE
	$(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*

.PHONY: plugin emulator
plugin:
	$(MAKE) -C spank B=$(B)
emulator:
	$(MAKE) -C contrib/nvml-emulator B=$(B)

# Generates the manual pages from the help texts, and the completion scripts for the shells.
.PHONY: manual
manual: $(PROGRAMS:%=$(B)/%)
	rm -rf $(B)/man $(B)/completions
	mkdir -p $(B)/man $(B)/completions
	SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(GO) test -count=1 -ldflags '$(LDFLAGS)' -run '^TestManPages$$' \
		$(PROGRAMS:%=./cmd/%) -man=$(B)/man
	for program in $(PROGRAMS); do for shell in bash zsh fish; do \
		$(B)/$$program completion $$shell >$(B)/completions/$$program.$$shell || exit 1; done; done

# RELEASES lists Slurm releases. The test-matrix target tests Caelum on each of them, and the test-packages and release
# targets build a plugin for each, in addition to the one for this machine's release.
ifeq ($(origin RELEASES),undefined)
MATRIX   := 22.05 24.11 26.05
RELEASES := 24.11
else
MATRIX   := $(RELEASES)
endif

# Creates the files of a Caelum release (CONTRIBUTING.md, "Make a release").
.PHONY: release
release:
	contrib/packages/release $(RELEASES)

# Builds deb and rpm packages in build/packages (contrib/packages/README.md).
PACKAGES ?= caelum-client caelum caelum-spank caelum-controller
.PHONY: packages
packages: prerequisites
	$(MAKE) plugin $(if $(filter-out caelum-spank,$(PACKAGES)),manual)
	rm -rf $(B)/packages
	VERSION=$(VERSION) SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) \
		contrib/packages/build "$(SLURM_CFLAGS)" $(PACKAGES)

# Checks the contents of the packages, runs lintian and rpmlint, installs the packages in fresh Debian root directories,
# converts sites with Debian's Slurm there, and upgrades the packages while jobs run under a booted systemd, on this
# machine's release and on those in RELEASES (contrib/packages/README.md).
.PHONY: test-packages
test-packages: prerequisites
	for tool in lintian rpmlint rpm cpio debootstrap; do command -v $$tool >/dev/null || \
		apt-get install -y --no-install-recommends $$tool || exit 1; done
	$(MAKE) all
	$(MAKE) packages
	for release in $(RELEASES); do $(MAKE) packages SLURM=$$release || exit 1; done
	$(GO) test -count=1 -v -tags e2e -timeout 40m ./contrib/packages
	for release in $(RELEASES); do $(MAKE) upgrade-test SLURM=$$release || exit 1; done

upgrade-test: prerequisites
	$(MAKE) all
	$(GO) test -count=1 -v -tags e2e -run TestUpgradeUnderJobs ./contrib/packages

demo: prerequisites
	$(MAKE) all
	$(GO) run ./contrib/devcluster/demo

# When slurmctld 22.05.8 is killed, it forgets runs, with or without Caelum, so make test leaves out the slurmctld-kill
# fault.
test: prerequisites
	$(MAKE) all
	$(MAKE) lint unit e2e
	$(MAKE) chaos CHAOS="-without slurmctld-kill"

# Tests everything that depends on the Slurm release, on each release in MATRIX, and the packages. Each release needs a
# root directory with a Debian suite, which the first run of test-matrix creates.
test-matrix:
	for release in $(MATRIX); do $(MAKE) release-test SLURM=$$release || exit 1; done
	$(MAKE) test-packages

release-test: prerequisites
	$(MAKE) all
	$(GO) test ./spank/...
	$(GO) run ./contrib/devcluster/demo
	$(MAKE) e2e
	$(MAKE) chaos CHAOS="-without slurmctld-kill"

# Upgrades a cluster from OLDER to NEWER while jobs run, and tests Caelum on nodes that are older than slurmctld.
OLDER ?= 24.11
NEWER ?= 26.05
mixed:
	contrib/devcluster/release $(OLDER) make all
	contrib/devcluster/release $(NEWER) make all
	contrib/devcluster/release $(OLDER) --new $(NEWER) \
		go test -count=1 -tags e2e -run 'OlderNodes|Upgrade|NothingIsLeftBehind' \
		./contrib/devcluster/e2e_mixed ./contrib/devcluster/cluster

# Runs random jobs under random faults and checks invariants (contrib/devcluster/README.md, "Chaos"). CHAOS adds
# options, for example CHAOS="-without idle-removed -v". `go run` does not return the program's exit status, so the
# target first builds the program and then runs it.
SECONDS ?= 300
SEED    ?= 1
CHAOS   ?=
chaos: prerequisites
	$(MAKE) all
	$(GO) build -trimpath -buildvcs=false -o $(B)/devcluster-chaos ./contrib/devcluster/chaos
	$(B)/devcluster-chaos -seed $(SEED) -seconds $(SECONDS) $(CHAOS)

# Measures what Caelum costs on a devcluster. The figures are in contrib/lab/results.md.
bench: prerequisites
	$(MAKE) all
	$(GO) build -C contrib/lab -trimpath -buildvcs=false -o $(B)/devcluster-bench ./bench
	$(B)/devcluster-bench

# Compares predictions from earlier runs with simple rules, in a simulation. The figures are in contrib/lab/results.md.
# MISO is the path of a file with the MISO paper's step times.
MISO ?=
learn:
	$(GO) run -C contrib/lab ./learn population
	$(GO) run -C contrib/lab ./learn variants
	$(GO) run -C contrib/lab ./learn runtimes
	$(GO) run -C contrib/lab ./learn forecast
	$(GO) run -C contrib/lab ./learn grow
	if test -n "$(MISO)"; then $(GO) run -C contrib/lab ./learn miso "$(abspath $(MISO))"; fi

# Fuzzes the readers of untrusted input and the planner (contrib/lab/results.md, "Fuzzing"). Each fuzz target runs for
# FUZZTIME seconds. The unit tests also run the inputs for which fuzzing has found faults.
FUZZTIME ?= 3600
fuzz: prerequisites
	@command -v clang >/dev/null || { echo "couldn't find clang; run apt-get install clang"; exit 1; }
	for f in internal/node/api:FuzzServer internal/node/agent:FuzzAgent internal/node/agent:FuzzRecords spank/submit:FuzzTable spank/submit:FuzzSubmit spank/submit:FuzzModify \
		internal/core/mig:FuzzParse internal/sim/trace:FuzzSacct internal/core/predict:FuzzSummaries internal/cli/setup:FuzzMerge; do \
		$(GO) test ./$${f%:*} -run '^$$' -fuzz "^$${f#*:}\$$" -parallel=1 -fuzztime=$(FUZZTIME)s -fuzzminimizetime=50x || exit 1; done
	cd contrib/lab && $(GO) test ./reconfigure -run '^$$' -fuzz '^FuzzPlan$$' -parallel=1 -fuzztime=$(FUZZTIME)s \
		-fuzzminimizetime=50x
	$(MAKE) -C spank/fuzz fuzz B=$(B) FUZZTIME=$(FUZZTIME)
	$(MAKE) -C contrib/nvml-emulator/fuzz fuzz B=$(B) FUZZTIME=$(FUZZTIME)

# Runs the same lint and unit tests as make test, but the unit tests with -short. With -short, slow tests are skipped or
# run fewer cases, tests that repeat random events repeat fewer of them, and property tests draw a fifth of the cases,
# and do not check that the cases cover everything. WITHOUT_RACE lists packages whose tests start many processes, or
# mainly test programs in C or Python. make check tests them without the race detector, and make unit with it. GORACE
# omits the pause of one second in which a process that ends waits for races in its remaining goroutines. -j3 runs lint,
# race and norace at the same time.
check: export SHORT := -short
check: export WITHOUT_RACE := $(PROGRAMS:%=cmd/%) contrib/nvml-emulator contrib/packages contrib/pytorch internal/slurm \
	spank/harness
check: export GORACE := atexit_sleep_ms=0
check:
	$(MAKE) --no-print-directory --output-sync=target -j3 lint unit

# Runs the tests with the race detector, except in the packages in PURE, which start no goroutines (internal/lint checks
# the list). In these packages, the race detector would find nothing and make the tests up to ten times slower. -vet=off
# avoids repeating the lint target's vet run. Because some tests mostly wait, make unit tests twice as many packages in
# parallel as the machine has cores.
PURE := contrib/ansible contrib/mail contrib/monitoring contrib/devcluster/oracle \
	spank/submit contrib/nvml-emulator/fuzz docs internal/config internal/controller/decisions \
	internal/core/eligible internal/cli/gpuhours internal/node/inventory internal/cli/jobreport internal/controller/learn internal/node/ledger \
	internal/lint internal/cli/man internal/core/mig internal/core/offer internal/cli/overview internal/core/part internal/core/place \
	internal/core/place/placetest internal/core/plan internal/core/predict internal/core/preempt internal/sim/report \
	internal/cli/setup internal/controller/shadow internal/sim internal/sqlite internal/core/tags internal/sim/trace internal/trust spank/fuzz
# On a loaded machine, TestKill runs for longer than go test's default of 10 minutes.
GOTEST  = $(GO) test -vet=off -timeout 60m -p $(shell expr 2 \* $$(nproc)) $(SHORT)
TESTED  = $(shell $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...)
# The emulator is built first, because several packages use it.
unit: race norace clients-short lab
race: emulator
	$(GOTEST) -race $(filter-out $(PURE:%=caelum/%) $(WITHOUT_RACE:%=caelum/%),$(TESTED))
norace: emulator
	$(GOTEST) $(PURE:%=./%) $(WITHOUT_RACE:%=./%)

# Tests the programs that measure and simulate (contrib/lab/README.md). They are a Go module of their own.
.PHONY: lab
lab:
	$(GO) vet -C contrib/lab ./...
	cd contrib/lab && $(GO) tool staticcheck ./... && $(GO) test -vet=off $(SHORT) ./...

# Builds other projects' NVML clients from the Go module proxy and runs them on the emulator
# (contrib/nvml-emulator/clients/README.md). They are a Go module of their own. make unit runs them on two GPU models, to
# save time; make clients, on all.
CLIENTS := contrib/nvml-emulator/clients
.PHONY: clients clients-short
clients-short: SHORT = -short
clients clients-short: emulator
	$(GO) build -C $(CLIENTS) -trimpath -buildvcs=false -ldflags '-s -w' -o $(B)/clients/ tool
	CLIENTS_SUM="$$(cat $(B)/libnvidia-ml.so.1 $(B)/nvml-emulator $(B)/clients/* | sha256sum)" \
		$(GO) test -C $(CLIENTS) -timeout 60m $(SHORT) ./...

# Tests Caelum on a real Slurm cluster, with Debian's slurmctld, slurmd, slurmdbd, MariaDB and munge. Only the GPUs are
# emulated. E2E lists the test packages.
E2E ?= ./contrib/devcluster/...
e2e:
	$(GO) test -count=1 -tags e2e -timeout 40m $(E2E)

# Tests only the shipped unit files: systemd-analyze checks them, and jobs run under a private systemd. The e2e target
# includes these tests.
units: prerequisites
	$(MAKE) all
	$(GO) test -count=1 -v -tags e2e ./contrib/devcluster/e2e_units

SHELL_SCRIPTS := contrib/git-hooks/commit-msg contrib/mail/caelum-mail $(addprefix contrib/packages/,build fresh installation release stock) $(wildcard contrib/packages/scripts/*) \
	$(addprefix contrib/devcluster/,devcluster loaded prerequisites release slurm-tests machine/boot) $(wildcard contrib/devcluster/lib/*.sh)
lint:
	@test -z "$$(gofmt -l cmd internal spank contrib docs)" || { gofmt -l cmd internal spank contrib docs; echo "run gofmt -w on the listed files"; exit 1; }
	$(GO) vet -tags e2e ./...
	$(GO) tool staticcheck -tags e2e ./...
	find spank contrib -name "*.[ch]" | xargs clang-format --dry-run --Werror
	shellcheck -S warning .ci/run $(SHELL_SCRIPTS)
	luacheck --no-color -q spank/submit

# PLUGINDIR is the directory from which this host's Slurm loads plugins. The SPANK plugin loads its Go object from
# there.
PLUGINDIR ?= $(shell scontrol show config 2>/dev/null | sed -n 's/^PluginDir *= *//p')
install: all
	@test -n "$(PLUGINDIR)" || { echo "couldn't read PluginDir from Slurm; run make install PLUGINDIR=DIR, for example /usr/lib/x86_64-linux-gnu/slurm-wlm"; exit 1; }
	install -D -m 0755 -t $(DESTDIR)$(PREFIX)/sbin $(B)/caelumd $(B)/caelum-watch $(B)/caelum-show
	install -D -m 0755 $(B)/caelum $(DESTDIR)$(PREFIX)/bin/caelum
	install -D -m 0644 -t $(DESTDIR)$(PLUGINDIR) $(B)/spank_caelum.so $(B)/libcaelum_spank.so
	install -D -m 0644 etc/caelumd.service $(DESTDIR)/lib/systemd/system/caelumd.service
	install -D -m 0644 -t $(DESTDIR)/lib/systemd/system etc/caelum-watch.service etc/caelum-observe.service
	install -D -m 0644 etc/tmpfiles.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/caelum.conf
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/caelum spank/submit/job_submit.lua etc/caelum.yaml
	install -D -m 0755 -t $(DESTDIR)$(PREFIX)/share/caelum contrib/mail/caelum-mail

clean:
	rm -rf $(B)

FORCE:

endif
