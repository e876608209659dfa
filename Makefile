# Caelum. The two commands that matter:
#
#   make demo    a private two-node Slurm with emulated GPUs, jobs by an unchanged user, and a table of what they got
#   make test    every check: lint, unit tests, the plugin's harness, the whole on a real Slurm, and five minutes of chaos
#
# make check is the part of make test that needs no Slurm.
#
# Both install what they need (Debian packages, Go modules). Go 1.26 must be there.

B       := $(CURDIR)/build
GO      ?= go
PREFIX  ?= /usr
# go-nvml's bindings name calls that NVIDIA has deprecated.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations
# The version is that of the tag, v1.2.3 or v1.2.3-rc1, with the number of commits since then. A checkout without a tag
# has version 0.0.0 and the number of all its commits.
VERSION ?= $(shell (git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || \
	echo v0.0.0-$$(git rev-list --count HEAD)-g$$(git describe --always --dirty --match none)) | sed 's/^v//')
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# Of everything whose contents depend on a date.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
LDFLAGS := -X caelum/internal/version.Version=$(VERSION) -X caelum/internal/version.Commit=$(COMMIT)

# make demo SLURM=24.11 runs the target where that release of Slurm is installed (contrib/devcluster/README.md).
ifdef SLURM
.PHONY: all demo test check bench chaos unit e2e units
all demo test check bench chaos unit e2e units:
	contrib/devcluster/release $(SLURM) make $@ $(MAKEOVERRIDES) SLURM=

# The plugin for that release, into the same directory as the packages for this machine's release.
.PHONY: packages
packages:
	mkdir -p $(B)/packages
	contrib/devcluster/release $(SLURM) make packages PACKAGES=caelum-spank VERSION=$(VERSION) COMMIT=$(COMMIT) \
		SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(MAKEOVERRIDES) SLURM= >&2
	contrib/devcluster/release $(SLURM) tar -C build/packages -c . | tar -C $(B)/packages -x
else

.PHONY: all demo test check bench chaos learn fuzz unit e2e units lint prerequisites install clean FORCE
all: $(B)/caelumd $(B)/caelum plugin emulator

prerequisites:
	@command -v $(GO) >/dev/null || { echo "Go 1.26 is needed"; exit 1; }
	@contrib/devcluster/prerequisites

$(B)/caelumd $(B)/caelum: $(B)/%: FORCE
	$(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*

.PHONY: plugin emulator
plugin:
	$(MAKE) -C spank B=$(B)
emulator:
	$(MAKE) -C contrib/nvml-emulator B=$(B)

# The manual pages, from the help texts, and what the shells complete.
.PHONY: manual
manual: $(B)/caelumd $(B)/caelum
	rm -rf $(B)/man $(B)/completions
	mkdir -p $(B)/man $(B)/completions
	SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(GO) test -count=1 -ldflags '$(LDFLAGS)' -run '^TestManPages$$' \
		./cmd/caelum ./cmd/caelumd -man=$(B)/man
	for program in caelum caelumd; do for shell in bash zsh fish; do \
		$(B)/$$program completion $$shell >$(B)/completions/$$program.$$shell || exit 1; done; done

# The files of a release: CONTRIBUTING.md, "Make a release". RELEASES are releases of Slurm besides the one of this machine.
RELEASES ?= 24.11
.PHONY: release
release:
	contrib/packages/release $(RELEASES)

# deb and rpm packages in build/packages (contrib/packages/README.md).
PACKAGES ?= caelum caelum-spank caelum-controller
.PHONY: packages
packages: prerequisites
	$(MAKE) plugin $(if $(filter caelum,$(PACKAGES)),manual)
	rm -rf $(B)/packages
	VERSION=$(VERSION) SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) \
		contrib/packages/build "$(SLURM_CFLAGS)" $(PACKAGES)

# Without Slurm: contents, lintian, rpmlint, and installation in fresh roots of Debian (contrib/packages/README.md).
.PHONY: test-packages
test-packages: prerequisites
	for tool in lintian rpmlint rpm cpio debootstrap; do command -v $$tool >/dev/null || \
		apt-get install -y --no-install-recommends $$tool || exit 1; done
	$(MAKE) packages
	for release in $(RELEASES); do $(MAKE) packages SLURM=$$release || exit 1; done
	$(GO) test -count=1 -v -tags e2e -timeout 40m ./contrib/packages

demo: prerequisites
	$(MAKE) all
	$(GO) run ./contrib/devcluster/demo

# slurmctld 22.05.8 forgets runs when it is killed, with or without Caelum, so the test leaves that fault of chaos out.
test: prerequisites
	$(MAKE) all
	$(MAKE) check e2e
	$(MAKE) chaos CHAOS="-without slurmctld-kill"

# Random load under faults, judged from first principles: contrib/devcluster/README.md, "Chaos". CHAOS has further options,
# such as CHAOS="-without idle-removed -v". The program is built and not run by `go run`, which returns no exit status.
SECONDS ?= 300
SEED    ?= 1
CHAOS   ?=
chaos: prerequisites
	$(MAKE) all
	$(GO) build -trimpath -buildvcs=false -o $(B)/devcluster-chaos ./contrib/devcluster/chaos
	$(B)/devcluster-chaos -seed $(SEED) -seconds $(SECONDS) $(CHAOS)

# What it costs, on a devcluster; figures are in docs/results.md.
bench: prerequisites
	$(MAKE) all
	$(GO) build -trimpath -buildvcs=false -o $(B)/devcluster-bench ./contrib/devcluster/bench
	$(B)/devcluster-bench

# What is learnt from earlier runs, against simple rules; no devcluster, and figures are in docs/results.md. MISO is the path of that paper's step times.
MISO ?=
learn:
	$(GO) run ./contrib/learn population
	$(GO) run ./contrib/learn runtimes
	if test -n "$(MISO)"; then $(GO) run ./contrib/learn miso "$(MISO)"; fi

# The inputs that others write, and plans; FUZZTIME seconds each (docs/results.md, "Fuzzing"). What it has found is among the cases
# of the ordinary tests.
FUZZTIME ?= 3600
fuzz: prerequisites
	@command -v clang >/dev/null || { echo "clang is needed: apt-get install clang"; exit 1; }
	for f in internal/api:FuzzServer internal/agent:FuzzAgent internal/agent:FuzzRecords contrib/job_submit:FuzzTable contrib/job_submit:FuzzSubmit contrib/job_submit:FuzzModify \
		internal/mig:FuzzParse internal/reconfigure:FuzzPlan internal/trace:FuzzSacct internal/predict:FuzzSummaries; do \
		$(GO) test ./$${f%:*} -run '^$$' -fuzz "^$${f#*:}\$$" -parallel=1 -fuzztime=$(FUZZTIME)s -fuzzminimizetime=50x || exit 1; done
	$(MAKE) -C spank/fuzz fuzz B=$(B) FUZZTIME=$(FUZZTIME)
	$(MAKE) -C contrib/nvml-emulator/fuzz fuzz B=$(B) FUZZTIME=$(FUZZTIME)

check: lint unit

# With the race detector, except for packages that start no goroutine and compute for long: it makes them up to ten times
# slower and can find nothing there.
PURE := docs internal/learn internal/offer internal/place internal/place/placetest internal/predict internal/reconfigure \
	internal/sim internal/trace contrib/learn
unit:
	$(GO) test -race $(filter-out $(PURE:%=caelum/%),$(shell $(GO) list ./...))
	$(GO) test $(PURE:%=./%)

# The whole on a real Slurm: slurmctld, slurmd, slurmdbd, MariaDB and munge of Debian; only the GPUs are emulated.
e2e:
	$(GO) test -count=1 -tags e2e -timeout 40m ./contrib/devcluster/...

# The shipped unit files alone: their ratings by systemd-analyze, and jobs under a systemd of their own. A part of e2e.
units: prerequisites
	$(MAKE) all
	$(GO) test -count=1 -v -tags e2e ./contrib/devcluster/e2e_units

SHELL_SCRIPTS := contrib/git-hooks/commit-msg $(addprefix contrib/packages/,build fresh installation release) $(wildcard contrib/packages/scripts/*) \
	$(addprefix contrib/devcluster/,devcluster prerequisites release e2e_units/boot) $(wildcard contrib/devcluster/lib/*.sh)
lint:
	@test -z "$$(gofmt -l cmd internal spank contrib docs)" || { gofmt -l cmd internal spank contrib docs; echo "not gofmt-ed"; exit 1; }
	$(GO) vet -tags e2e ./...
	$(GO) tool staticcheck -tags e2e ./...
	find spank contrib -name "*.[ch]" | xargs clang-format --dry-run --Werror
	shellcheck -S warning .ci/run $(SHELL_SCRIPTS)
	luacheck --no-color -q contrib/job_submit.lua contrib/job_submit

# PLUGINDIR is where this host's Slurm looks for plugins; the Go object of the plugin lies beside it.
PLUGINDIR ?= $(shell scontrol show config 2>/dev/null | sed -n 's/^PluginDir *= *//p')
install: all
	@test -n "$(PLUGINDIR)" || { echo "where are Slurm's plugins? make install PLUGINDIR=/usr/lib/x86_64-linux-gnu/slurm-wlm"; exit 1; }
	install -D -m 0755 $(B)/caelumd $(DESTDIR)$(PREFIX)/sbin/caelumd
	install -D -m 0755 $(B)/caelum $(DESTDIR)$(PREFIX)/bin/caelum
	install -D -m 0644 -t $(DESTDIR)$(PLUGINDIR) $(B)/spank_caelum.so $(B)/libcaelum_spank.so
	install -D -m 0644 etc/caelumd.service $(DESTDIR)/lib/systemd/system/caelumd.service
	install -D -m 0644 etc/caelum-watch.service $(DESTDIR)/lib/systemd/system/caelum-watch.service
	install -D -m 0644 etc/tmpfiles.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/caelum.conf
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/caelum contrib/job_submit.lua etc/caelum.yaml

clean:
	rm -rf $(B)

FORCE:

endif
