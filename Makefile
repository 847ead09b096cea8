# SPDX-License-Identifier: GPL-2.0
# `make help` lists the targets. Everything that is built lies under build/.

BUILD   := build
prefix  ?= /usr/local
sbindir ?= $(prefix)/sbin
bindir  ?= $(prefix)/bin
docdir  ?= $(prefix)/share/doc/nagletrace
monitoringdocdir ?= $(docdir)
mandir  ?= $(prefix)/share/man
bashcompletiondir ?= $(prefix)/share/bash-completion/completions
zshcompletiondir ?= $(prefix)/share/zsh/site-functions
datadir ?= $(prefix)/share/nagletrace
unitdir ?= $(prefix)/lib/systemd/system
sysusersdir ?= $(prefix)/lib/sysusers.d
DESTDIR ?=

ifneq ($(filter default undefined,$(origin CC)),)
CC      := gcc
endif
STRIP   ?= strip
CLANG   ?= clang
BPFTOOL ?= $(firstword $(wildcard /usr/sbin/bpftool /sbin/bpftool) bpftool)
SUDO    := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
ARCH    := $(shell uname -m | sed 's/x86_64/x86/; s/aarch64/arm64/')
MACHINE := $(shell uname -m)
MULTIARCH := $(shell $(CC) -print-multiarch 2>/dev/null)
ASM_INCLUDE := $(if $(MULTIARCH),/usr/include/$(MULTIARCH))

CFLAGS  ?= -O2 -g
WARN    := -Wall -Wextra -Werror -Wno-unused-parameter
# where it was built does not stand in what is built
PREFIX_MAP := -ffile-prefix-map=$(CURDIR)=.
ALL_CFLAGS := $(CPPFLAGS) $(CFLAGS) $(PREFIX_MAP) $(WARN) -std=gnu11 -D_GNU_SOURCE -I$(BUILD) -Iuserspace -I.
LIBS    := -lbpf -levent_core -lcap -lseccomp -ljson-c -ldw -lelf -lz -pthread
SCREEN_LIBS := -lncursesw
# and what these need in their turn
STATIC_LIBS := $(LIBS) $(SCREEN_LIBS) -ltinfo -llzma -lbz2 -lzstd
SANITIZE := -g -O1 -fno-sanitize-recover=all -fsanitize=address,undefined

ifeq ($(V),1)
Q :=
say :=
else
Q := @
say = @printf '  %-8s %s\n' $(1) $(2);
endif

# ---- what is needed, as Debian calls it ----

BUILD_PACKAGES := gcc libc6-dev clang bpftool libbpf-dev libelf-dev zlib1g-dev libdw-dev libjson-c-dev \
                  libevent-dev uthash-dev libcap-dev libseccomp-dev libncurses-dev
IMAGE_PACKAGES := buildah mmdebstrap uidmap
DEB_PACKAGES   := build-essential debhelper dh-python python3
RPM_PACKAGES   := rpm
LAB_PACKAGES   := liburing-dev
MONITORING_PACKAGES := python3 python3-prometheus-client python3-bcrypt python3-yaml python3-jinja2 python3-uvicorn \
                  prometheus prometheus-alertmanager iproute2
STATIC_PACKAGES := binutils liblzma-dev libbz2-dev libzstd-dev ncurses-bin
ifeq ($(MACHINE),x86_64)
CROSS_PACKAGES := gcc-aarch64-linux-gnu binutils-aarch64-linux-gnu libc6-dev-arm64-cross python3 debian-archive-keyring
endif
# of these arm64's are unpacked in the cache, not installed
SYSROOT_PACKAGES := libbpf-dev libelf-dev zlib1g-dev libdw-dev libjson-c-dev libevent-dev uthash-dev libcap-dev \
                  libseccomp-dev libncurses-dev liblzma-dev libbz2-dev libzstd-dev liburing-dev
ARM64_PACKAGES := qemu-system-arm busybox-static python3-pytest $(CROSS_PACKAGES)

BENCH_PACKAGES := bpftrace bpfcc-tools tcpdump util-linux iproute2 python3
SERVER_PACKAGES := redis-server redis-tools nginx-light apache2-utils postgresql iperf3
GO_PACKAGES    := $(if $(shell command -v go 2>/dev/null),,golang-go ca-certificates)
GADGET_PACKAGES := clang llvm make libbpf-dev python3 $(GO_PACKAGES)
CLUSTER_PACKAGES := etcd-server containerd runc containernetworking-plugins debootstrap iproute2 util-linux python3-venv
GUEST_PACKAGES := qemu-system-x86 busybox-static kmod file python3-venv python3-impacket
# Grafana's components come from npm, and run in a browser
PICTURE_PACKAGES := chromium fonts-inter pngquant $(if $(shell command -v npm 2>/dev/null),,nodejs npm)

UNIT_PACKAGES  := libcmocka-dev libclang-rt-dev clang-format python3 python3-pytest python3-dpkt \
                  python3-pyelftools
EXPORTER_PACKAGES := python3-pytest python3-jsonschema python3-venv python3-bpfcc openssl nginx-light \
                  $(MONITORING_PACKAGES)
# those of `make test`
TEST_PACKAGES  := $(UNIT_PACKAGES) $(EXPORTER_PACKAGES) $(LAB_PACKAGES) tcpdump procps util-linux iproute2 \
                  mandoc python3-pyte nftables
# with the programs that the live tests look at, or that look at them
LIVE_PACKAGES  := $(TEST_PACKAGES) $(STATIC_PACKAGES) strace memcached python3-pymemcache socat \
                  libhttp-daemon-perl file git systemd default-jdk-headless zsh jq curl beanstalkd haproxy lighttpd \
                  rsync openssh-server openssh-client unbound mosquitto mosquitto-clients php8.2-cgi

# what is installed as nagletrace-NAME, and starts main.py in the package of that name in exporters/nagletrace_exporters
PYTHON_COMMANDS := exporter report flame join
PYTHON_FILES := $(shell cd exporters && find nagletrace_exporters -name '*.py' -o -name py.typed -o -name VERSION -o \
                  -name '*.sql' -o -path '*/templates/*')

MAN_PAGES := $(wildcard docs/man/*.[18])
COMMAND_PAGES := docs/man/nagletrace.8
TOP_DOCS := README.md CHANGELOG.md SECURITY.md LICENSE

SOURCES := $(filter-out userspace/base/static.c,$(wildcard userspace/*/*.c))
OBJECTS := $(SOURCES:userspace/%.c=$(BUILD)/userspace/%.o)
LAB     := $(wildcard tests/lab/*.c)
FUZZERS := $(patsubst tests/%.c,$(BUILD)/%,$(wildcard tests/fuzz/fuzz_*.c))
UNITS   := $(patsubst tests/%.c,$(BUILD)/%,$(wildcard tests/unit/test_*.c tests/model/test_*.c))

.DEFAULT_GOAL := build
# each builds by a make of its own: two of them at once would write the same files
ifneq ($(word 2,$(filter-out $(BUILD)/%,$(MAKECMDGOALS))),)
ifeq ($(MAKELEVEL),0)
.NOTPARALLEL:
endif
endif
STATIC_MACHINES := $(MACHINE) $(if $(CROSS_PACKAGES),aarch64)
VERSION := $(shell cat VERSION)
.PHONY: help deps deps-test build demo demo-monitoring bench bench-instructions bench-join install install-command install-exporters uninstall dist \
	deb rpm gadget images clean format options
.DELETE_ON_ERROR:

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p; s/^$$(eval $$(call part,\([a-z0-9]*\),.*## \(.*\)/  make test-\1\t\2/p' \
		$(MAKEFILE_LIST) | expand -t 24

deps: ## install what the build needs (apt), or say what is wanted
	@tests/deps.sh $(BUILD_PACKAGES)

deps-test: ## install what all tests need too
	@tests/deps.sh $(BUILD_PACKAGES) $(sort $(foreach part,$(PARTS),$(NEEDS_$(part))))

build: deps ## build build/nagletrace
	@$(MAKE) --no-print-directory $(BUILD)/nagletrace

static: deps ## build/static/nagletrace-VERSION-MACHINE: one file, no libraries, for x86-64 and arm64
	@tests/deps.sh $(STATIC_PACKAGES) $(CROSS_PACKAGES)
	@$(MAKE) --no-print-directory $(STATIC_MACHINES:%=static-%)
	@ls -l $(STATIC_MACHINES:%=$(BUILD)/static/nagletrace-$(VERSION)-%)

demo: ## trace a program that stalls, and print what nagletrace says of it
	@tests/deps.sh $(BUILD_PACKAGES) $(LAB_PACKAGES)
	@$(MAKE) --no-print-directory $(BUILD)/nagletrace $(BUILD)/nagle-lab
	@$(SUDO) tests/demo.sh $(BUILD)/nagletrace $(BUILD)/nagle-lab

demo-monitoring: ## the same with Prometheus and alerts, for ten minutes; says where to look
	@tests/deps.sh $(BUILD_PACKAGES) $(LAB_PACKAGES) $(MONITORING_PACKAGES)
	@$(MAKE) --no-print-directory $(BUILD)/nagletrace $(BUILD)/nagle-lab
	@$(SUDO) /usr/bin/python3 tests/monitoring/demo.py

# ---- the tests; CONTRIBUTING.md says what runs when ----

# T=pattern and M=marks choose among them, as pytest's -k and -m do
RUN = /usr/bin/python3 tests/run.py $(if $(T),-k '$(T)') $(if $(K),--kernels '$(K)') $(if $(H),--kinds '$(H)') \
	$(COUNTS:%=--counts %)
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

check: ## before each commit: format, lint, types, unit tests, model; a minute, without root, installs nothing
	@DEPS=$${DEPS:-say} tests/deps.sh $(BUILD_PACKAGES) $(UNIT_PACKAGES)
	@$(MAKE) --no-print-directory $(JOBS) units
	@$(RUN) style+model+unit

test: ## check, and the quick ones of all parts, in minutes, as root; ends with counts of passed, failed and skipped
	@tests/deps.sh $(BUILD_PACKAGES) $(TEST_PACKAGES)
	@/usr/bin/python3 tests/tools.py >/dev/null
	@$(MAKE) --no-print-directory $(JOBS) quick-for-tests
	@$(RUN) style+model+unit+exporters:'not slow'+monitoring:quick packets live:quick

# A kernel and its kind of hooks, of those in MATRIX in tests/run.py: two guests, beside each other, with half of the tests.
# Kprobes are for kernels without fentry: 5.10 stands for them here, and test-arm64 plays them on 6.1 and 6.12.
GUESTS := $(foreach k,6.1 7 6.12 5.10,"test-kernels K=$(k) H=function") "test-kernels K=5.10 H=kprobe" \
	$(foreach k,7 6.12,"test-kernels K=$(k) H=tracepoint") "test-kernels K=6.1 H=once"

test-all: ## all there are, part by part, in hours; ends with a table of them
	@/usr/bin/python3 tests/run.py steps check mutants $(filter-out test-model test-live test-kernels,$(PARTS:%=test-%)) \
		"test-live M=quick" "test-live M='not quick'" $(GUESTS)

# A part is a row: $(1) its name, $(2) what is built for it, $(3) what it needs besides the build. Its tests lie in
# tests/NAME, or where tests/run.py says.
define part
PARTS += $(1)
NEEDS_$(1) := $(3)
.PHONY: test-$(1)
test-$(1):
	@$(if $(filter model,$(1)),DEPS=$$(or $$(DEPS),say)) tests/deps.sh $(BUILD_PACKAGES) $(3)
	$(if $(2),@$$(MAKE) --no-print-directory $$(JOBS) $(2))
	@$$(RUN) $(1)$$(if $$(M),:'$$(M)')
endef
PARTS :=
$(eval $(call part,model,$(filter $(BUILD)/model/%,$(UNITS)),$(UNIT_PACKAGES))) ## the programs of bpf/ on the host, against a model of TCP
$(eval $(call part,exporters,,$(EXPORTER_PACKAGES))) ## the Python programs by themselves
$(eval $(call part,live,all-for-tests,$(LIVE_PACKAGES))) ## the tracer on this machine, by the workloads of tests/lab
$(eval $(call part,packets,quick-for-tests,$(TEST_PACKAGES))) ## packet scripts: peers whose every segment is written down
$(eval $(call part,monitoring,for-monitoring,$(TEST_PACKAGES) $(GUEST_PACKAGES) systemd)) ## rules, dashboards, units, and all together with a real Prometheus
$(eval $(call part,packages,quick-for-tests,$(TEST_PACKAGES) $(DEB_PACKAGES) $(RPM_PACKAGES) $(STATIC_PACKAGES) $(CROSS_PACKAGES) debootstrap lintian)) ## the Debian and RPM packages in roots of Debian 12 and 13
$(eval $(call part,kernels,for-guests,$(TEST_PACKAGES) $(GUEST_PACKAGES) strace)) ## live tests in guests with Debian's 5.10, 6.1, 6.12 and newest kernel
$(eval $(call part,arm64,static-aarch64 lab-aarch64,$(ARM64_PACKAGES))) ## the static binary on arm64, in an emulated machine
$(eval $(call part,instructions,$(BUILD)/nagletrace $(BUILD)/bench/load $(BUILD)/bench/empty,$(TEST_PACKAGES) $(GUEST_PACKAGES))) ## instructions that tracing adds, against a budget, in a guest that counts them
$(eval $(call part,clickhouse,,$(EXPORTER_PACKAGES))) ## the store of dashboards/clickhouse in ClickHouse's engine (from PyPI, 200 MB), against nagletrace-join
$(eval $(call part,carriers,quick-for-tests,$(TEST_PACKAGES) rsyslog rsyslog-relp systemd-journal-remote)) ## records by OTLP to rotel, and by lines to rsyslog and journald, which are killed and come back
$(eval $(call part,helm,,$(EXPORTER_PACKAGES) $(GO_PACKAGES))) ## the Helm chart: rendered by helm (built from its Go module), against the manifest and validators
$(eval $(call part,kubernetes,$(BUILD)/nagle-lab-static,$(EXPORTER_PACKAGES) $(LAB_PACKAGES) $(DEB_PACKAGES) $(GADGET_PACKAGES) $(CLUSTER_PACKAGES))) ## the Helm chart in a Kubernetes of one node (built from its Go module): admitted, ready, and the pod that stalls is named
$(eval $(call part,gadget,$(BUILD)/nagletrace $(BUILD)/nagle-lab $(BUILD)/nagle-lab-static,$(EXPORTER_PACKAGES) $(LAB_PACKAGES) $(GUEST_PACKAGES) $(GADGET_PACKAGES) containerd runc)) ## the gadget of packaging/gadget by Inspektor Gadget's ig (built from its Go module), natively and in guests
$(eval $(call part,images,$(BUILD)/nagletrace $(BUILD)/nagle-lab,$(TEST_PACKAGES) $(DEB_PACKAGES) $(IMAGE_PACKAGES))) ## the images: their files against the packages', and both together
$(eval $(call part,browser,,$(EXPORTER_PACKAGES) chromium)) ## the pages of the Python programs in a browser
$(eval $(call part,pictures,$(BUILD)/nagletrace $(BUILD)/nagle-lab,$(TEST_PACKAGES) $(PICTURE_PACKAGES))) ## the dashboards in a browser, by Grafana's components (from npm, 460 MB), of hosts that stall

mutants: ## a hundred mutants of the rules of bpf/, and how many of them the tests on the host find; in ten minutes
	@DEPS=$${DEPS:-say} tests/deps.sh $(BUILD_PACKAGES) $(UNIT_PACKAGES)
	@/usr/bin/python3 tests/model/mutants.py --jobs $$(nproc) $(COUNTS:%=--counts %)

test-guest: ## test-kernels K=6.1
	@$(MAKE) --no-print-directory test-kernels K=6.1

test-kernel: ## test-kernels K=6.1, or of another
	@$(MAKE) --no-print-directory test-kernels K='$(or $(K),6.1)'

bench: ## what tracing costs, side by side with its peers: docs/performance.md and build/bench/
	@tests/deps.sh $(BUILD_PACKAGES) $(BENCH_PACKAGES)
	@$(MAKE) --no-print-directory $(BUILD)/nagletrace $(BUILD)/bench/load $(BUILD)/bench/empty
	@$(SUDO) /usr/bin/python3 tests/bench/bench.py

bench-instructions: ## instructions that tracing adds, by kernel and hooks: docs/performance.md; K="7 6.12", H=tracepoint choose
	@tests/deps.sh $(BUILD_PACKAGES) $(TEST_PACKAGES) $(GUEST_PACKAGES) $(SERVER_PACKAGES)
	@$(MAKE) --no-print-directory $(BUILD)/nagletrace $(BUILD)/bench/load $(BUILD)/bench/empty
	@$(SUDO) /usr/bin/python3 tests/bench/instructions.py $(K) $(H:%=--hooks %)

bench-join: ## how nagletrace-join grows with what is recorded: docs/fleets.md; K="1 10" chooses the millions of records
	@tests/deps.sh python3 python3-venv
	@/usr/bin/python3 tests/bench/join.py $(K)

fuzz: ## what comes from outside, SECONDS=600 for each; leaves in tests/fuzz/corpus the 20 inputs a target that reach most
	@tests/deps.sh $(BUILD_PACKAGES) $(UNIT_PACKAGES)
	@$(MAKE) --no-print-directory $(JOBS) $(FUZZERS)
	@$(RUN) fuzz --fuzz-seconds=$(or $(SECONDS),600) --fuzz-keep

experiments: deps-test ## write docs/experiments.md: published figures, what the lab measures, what is said of it
	@$(MAKE) --no-print-directory all-for-tests
	@$(SUDO) /usr/bin/python3 tests/experiments.py

pictures: ## write docs/pictures: the dashboards by Grafana's components, the report and the flame graph, of real traces
	@tests/deps.sh $(BUILD_PACKAGES) $(TEST_PACKAGES) $(PICTURE_PACKAGES)
	@$(MAKE) --no-print-directory $(BUILD)/nagletrace $(BUILD)/nagle-lab
	@$(SUDO) /usr/bin/python3 tests/pictures/make.py

pasted: deps-test ## renew the outputs that README and docs show, from real runs; OUTPUT=name: that one, and what is of the same run
	@$(MAKE) --no-print-directory $(BUILD)/nagletrace $(BUILD)/nagle-lab
	@$(SUDO) /usr/bin/python3 tests/pasted.py $(OUTPUT)

dashboard: ## write dashboards/grafana/*.json by their generator
	@tests/deps.sh python3 python3-venv
	@tools=$$(/usr/bin/python3 tests/tools.py) && rm -rf $(BUILD)/grafana && mkdir -p $(BUILD)/grafana && \
	$$tools/python3 dashboards/grafana/generate.py $(BUILD)/grafana && \
	cp $(BUILD)/grafana/*.json dashboards/grafana/

accuracy: ## write docs/accuracy.md: missed, false, durations, by kernel and hooks; K="native 6.1 rt", H=function choose
	@tests/deps.sh $(BUILD_PACKAGES) $(TEST_PACKAGES) $(GUEST_PACKAGES)
	@$(MAKE) --no-print-directory $(JOBS) $(BUILD)/nagletrace $(BUILD)/nagle-lab
	@$(SUDO) /usr/bin/python3 tests/accuracy.py $(K) $(H:%=--hooks %)

.PHONY: mutants check test test-all test-guest test-kernel units quick-for-tests for-monitoring for-guests all-for-tests fuzz experiments pictures pasted dashboard \
	accuracy
units: $(UNITS) $(FUZZERS)
quick-for-tests: units $(BUILD)/nagletrace $(BUILD)/options $(BUILD)/nagle-lab $(BUILD)/bench/load $(BUILD)/hostile-stacks \
	$(BUILD)/nagletrace-gaps $(BUILD)/nagletrace-blind
for-monitoring: quick-for-tests $(BUILD)/soak
for-guests: quick-for-tests $(BUILD)/many-stacks
all-for-tests: for-monitoring for-guests static-$(MACHINE) $(BUILD)/bench/empty

# $(call install-units,NAME): by its name, with the places of the programs
install-units = install -d $(DESTDIR)$(unitdir) && \
	sed 's,/usr/sbin/,$(sbindir)/,; s,/usr/bin/,$(bindir)/,; s,/usr/share/doc/nagletrace,$(docdir),' \
		packaging/systemd/$(1).service \
		>$(DESTDIR)$(unitdir)/$(1).service
# $(call install-pages,PAGES)
install-pages = for page in $(1); do \
		install -d $(DESTDIR)$(mandir)/man$${page\#\#*.} && \
		sed 's,/usr/share/doc/nagletrace,$(docdir),' $$page \
			>$(DESTDIR)$(mandir)/man$${page\#\#*.}/$${page\#\#*/} || exit; \
	done

install: install-command install-exporters ## install to DESTDIR and prefix (default /usr/local)

# make rpm installs the static binary instead
BINARY := $(BUILD)/nagletrace
# report and top are for users too, whose PATH has no sbin on Debian: the command is in bin as well, as a link
install-command: build
	install -D -m 0755 $(BINARY) $(DESTDIR)$(sbindir)/nagletrace
	install -d $(DESTDIR)$(bindir)
	[ $(DESTDIR)$(sbindir)/nagletrace -ef $(DESTDIR)$(bindir)/nagletrace ] || \
		ln -srf $(DESTDIR)$(sbindir)/nagletrace $(DESTDIR)$(bindir)/nagletrace
	$(call install-units,nagletrace)
	install -D -m 0644 packaging/systemd/nagletrace.sysusers $(DESTDIR)$(sysusersdir)/nagletrace.conf
	$(call install-pages,$(COMMAND_PAGES))
	install -D -m 0644 packaging/completion/nagletrace.bash $(DESTDIR)$(bashcompletiondir)/nagletrace
	install -D -m 0644 packaging/completion/_nagletrace $(DESTDIR)$(zshcompletiondir)/_nagletrace
	install -D -m 0644 -t $(DESTDIR)$(docdir) $(TOP_DOCS) userspace/output/nagletrace.schema.json docs/*.md
	cd $(DESTDIR)$(docdir) && sed -i -E 's,\]\((docs|\.\.)/,](,g; s,(src|srcset)="docs/,\1=",' $(filter %.md,$(TOP_DOCS)) $(notdir $(wildcard docs/*.md))
	install -D -m 0644 -t $(DESTDIR)$(docdir)/runbooks docs/runbooks/*.md
	install -D -m 0644 -t $(DESTDIR)$(docdir)/pictures docs/pictures/*.png
	install -D -m 0644 -t $(DESTDIR)$(docdir)/kubernetes packaging/kubernetes/*.yaml
	rm -rf $(DESTDIR)$(docdir)/helm
	cp -rL --no-preserve=mode,ownership packaging/helm $(DESTDIR)$(docdir)/

install-exporters:
	for file in $(PYTHON_FILES); do \
		install -D -m 0644 exporters/$$file $(DESTDIR)$(datadir)/exporters/$$file || exit; \
	done
	install -d $(DESTDIR)$(bindir) $(DESTDIR)$(monitoringdocdir)/grafana
	for name in $(PYTHON_COMMANDS); do \
		sed "s,@DIRECTORY@,$(datadir)/exporters,; s,@MODULE@,$$name," exporters/command.in \
			>$(DESTDIR)$(bindir)/nagletrace-$$name && \
		chmod 0755 $(DESTDIR)$(bindir)/nagletrace-$$name || exit; \
	done
	$(call install-units,nagletrace-exporter)
	$(call install-pages,$(filter-out $(COMMAND_PAGES),$(MAN_PAGES)))
	install -D -m 0644 -t $(DESTDIR)$(monitoringdocdir)/prometheus dashboards/prometheus/*.yml
	sed -i 's,/usr/share/doc/nagletrace,$(docdir),' $(DESTDIR)$(monitoringdocdir)/prometheus/alerts.yml
	install -m 0644 -t $(DESTDIR)$(monitoringdocdir)/grafana dashboards/grafana/*.json
	install -D -m 0644 -t $(DESTDIR)$(monitoringdocdir)/clickhouse dashboards/clickhouse/*.sql
	install -D -m 0644 -t $(DESTDIR)$(monitoringdocdir)/clickhouse/queries dashboards/clickhouse/queries/*.sql
	cp -r --no-preserve=mode,ownership dashboards/grafana/provisioning $(DESTDIR)$(monitoringdocdir)/grafana/

uninstall: ## remove what install put there
	rm -f $(addprefix $(DESTDIR),$(sbindir)/nagletrace $(addprefix $(bindir)/,nagletrace $(addprefix nagletrace-,$(PYTHON_COMMANDS))) \
		$(addprefix $(unitdir)/,nagletrace.service nagletrace-exporter.service) $(sysusersdir)/nagletrace.conf \
		$(foreach page,$(MAN_PAGES),$(mandir)/man$(subst .,,$(suffix $(page)))/$(notdir $(page))) \
		$(bashcompletiondir)/nagletrace $(zshcompletiondir)/_nagletrace \
		$(addprefix $(docdir)/,$(TOP_DOCS) nagletrace.schema.json $(notdir $(wildcard docs/*.md))))
	rm -rf $(addprefix $(DESTDIR),$(datadir)/exporters \
		$(addprefix $(docdir)/,runbooks pictures kubernetes helm) $(addprefix $(monitoringdocdir)/,prometheus grafana clickhouse))
	-rmdir $(sort $(addprefix $(DESTDIR),$(docdir) $(monitoringdocdir) $(datadir))) 2>/dev/null

# Of the last commit, by git's and gzip's own settings and not the user's, nor the clone's or the system's: from a
# repository of its own that borrows the objects. The time in it is the commit's.
dist: ## the source archive build/nagletrace-VERSION.tar.gz: the last commit, the same bytes from every clone
	@git rev-parse -q --verify HEAD >/dev/null || \
		{ echo "nagletrace: the archive is made of a commit; run make dist in a git clone" >&2; exit 1; }
	@mkdir -p $(BUILD)
	@git diff --quiet HEAD || echo "nagletrace: what is not committed is not in the archive" >&2
	@name=nagletrace-$$(git show HEAD:exporters/nagletrace_exporters/VERSION) && rm -rf $(BUILD)/dist.git && \
	git init -q --bare --template= $(BUILD)/dist.git && mkdir -p $(BUILD)/dist.git/objects/info && \
	realpath "$$(git rev-parse --git-path objects)" >$(BUILD)/dist.git/objects/info/alternates && \
	GIT_ATTR_NOSYSTEM=1 git --git-dir=$(BUILD)/dist.git \
		-c tar.umask=0022 -c core.autocrlf=false -c core.eol=lf -c core.attributesFile=/dev/null \
		archive --format=tar --prefix=$$name/ --output=$(BUILD)/$$name.tar "$$(git rev-parse HEAD)" && \
	rm -r $(BUILD)/dist.git && \
	GZIP= gzip -n -9 -f $(BUILD)/$$name.tar && \
	echo "$(BUILD)/$$name.tar.gz"

deb: ## Debian packages of this tree, build/deb/*.deb; REVISION=2: the same version, packaged anew
	@tests/deps.sh $(BUILD_PACKAGES) $(DEB_PACKAGES)
	@packaging/deb.sh $(BUILD)/deb $(or $(REVISION),1)

rpm: ## RPM packages of this tree and the static binaries, build/rpm/*.rpm; REVISION=2: the same version, packaged anew
	@revision=$(or $(REVISION),1) sh packaging/revision.sh
	@tests/deps.sh $(RPM_PACKAGES)
	@$(MAKE) --no-print-directory static
	@packaging/rpm.sh $(BUILD)/rpm $(or $(REVISION),1) $(STATIC_MACHINES:%=$(BUILD)/static/nagletrace-$(VERSION)-%)

images: deb ## both images, of the Debian packages, by buildah: build/images/*.tar; BASE=image: on that one, of a registry
	@tests/deps.sh $(IMAGE_PACKAGES)
	@packaging/container/images.sh $(BUILD)/deb $(BUILD)/images $(BASE)

gadget: ## build/gadget/nagletrace-VERSION.tar: the programs as a gadget for Inspektor Gadget; the first time builds its ig
	@tests/deps.sh $(GADGET_PACKAGES)
	@/usr/bin/python3 tests/gadgets.py $(BUILD)/gadget

clean: ## remove build/
	rm -rf $(BUILD)

# what each of these files has of the options, by packaging/options.c
WITH_OPTIONS := bash:packaging/completion/nagletrace.bash zsh:packaging/completion/_nagletrace man:docs/man/nagletrace.8

options: deps ## write the options into the completions and docs/man/nagletrace.8, from their table
	@$(MAKE) --no-print-directory $(BUILD)/options
	@for one in $(WITH_OPTIONS); do \
		$(BUILD)/options $${one%%:*} <$${one#*:} >$(BUILD)/with-options && \
		cat $(BUILD)/with-options >$${one#*:} || exit; \
	done

CLANG_FORMAT ?= clang-format -i

format: ## format the C sources as .clang-format says, by clang-format 14
	$(CLANG_FORMAT) bpf/*.[ch] userspace/*/*.[ch] tests/lab/*.[ch] tests/unit/*.[ch] tests/fuzz/*.[ch] tests/bench/*.c tests/live/*.c tests/soak.c packaging/*.c packaging/gadget/*.[ch]

# ---- the kernel side ----

# v3 has 32-bit arithmetic and jumps, which kernels know since 5.1: programs take fewer instructions.
BPF_COMPILE = $(CLANG) -g -O2 $(PREFIX_MAP) $(WARN) -target bpf -mcpu=v3 \
	-D__TARGET_ARCH_$(ARCH) $(ASM_INCLUDE:%=-I%) -Ibpf

# the tracer, twice: by plain loads and by probed reads; what `nagletrace sample` loads instead; what `nagletrace fix --keep` attaches
BPF_OBJECTS := nagletrace probed sample keep
BPF_SKELETONS := $(BPF_OBJECTS:%=$(BUILD)/%.skel.h)

$(BPF_OBJECTS:%=$(BUILD)/%.bpf.o): $(BUILD)/%.bpf.o: bpf/%.bpf.c | $(BUILD)/userspace
	$(call say,BPF,$@)
	$(Q)$(BPF_COMPILE) -MMD -c $< -o $@

$(BPF_SKELETONS): $(BUILD)/%.skel.h: $(BUILD)/%.bpf.o
	$(call say,SKEL,$@)
	$(Q)$(BPFTOOL) gen skeleton $< name $*_bpf > $@

# ---- user space ----

$(BUILD)/userspace:
	$(Q)mkdir -p $@

$(BUILD)/version.h: VERSION | $(BUILD)/userspace
	$(Q)echo '#define NT_VERSION "$(VERSION)"' >$@

# what it includes of these, its .d knows
$(BUILD)/userspace/%.o: userspace/%.c | $(BPF_SKELETONS) $(BUILD)/version.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -c $< -o $@

$(BUILD)/userspace/output/schema.o: ALL_CFLAGS += -Wa,-Iuserspace/output
$(BUILD)/userspace/output/schema.o: userspace/output/nagletrace.schema.json

$(BUILD)/nagletrace: $(OBJECTS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(LDFLAGS) $(LIBS) $(SCREEN_LIBS) -o $@

$(BUILD)/options: packaging/options.c $(addprefix $(BUILD)/userspace/,cmd/options_table.o base/text.o base/numbers.o base/siphash.o)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MF $@.d $< $(filter %.o,$^) -o $@

# ---- the static binary ----

# what is wrapped: userspace/base/static.c. A function of glibc that would load libraries of the host is a warning.
$(BUILD)/nagletrace-static: $(OBJECTS) $(BUILD)/userspace/base/static.o
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -static -Wl,--fatal-warnings -Wl,--wrap=dlopen,--wrap=newterm $^ $(LDFLAGS) \
		-Wl,--start-group $(STATIC_LIBS) -Wl,--end-group -o $@.whole
	$(Q)$(STRIP) -o $@ $@.whole

$(BUILD)/userspace/base/static.o: $(BUILD)/terminfo.h

# a terminal's description as $$TERMINFO may hold it; ncurses 6.1 and newer
$(BUILD)/terminfo.h: | $(BUILD)/userspace
	$(Q)printf '#define NT_TERMINFO_NAME "xterm-256color"\n#define NT_TERMINFO "%s"\n' \
		"$$(infocmp -0 -q -Q2 xterm-256color)" >$@

# $(1): the machine
install_static = install -D -p -m 0755 $(BUILD)/$(2)/nagletrace-static $(BUILD)/static/nagletrace-$(VERSION)-$(1)

# arm64's on another machine: by Debian's cross compiler, with Debian's libraries, in a build directory of its own
define CROSS
sysroot=$$(/usr/bin/python3 tests/sysroot.py arm64 $(SYSROOT_PACKAGES)) && \
	$(MAKE) --no-print-directory BUILD=$(BUILD)/static/aarch64 CC=aarch64-linux-gnu-gcc STRIP=aarch64-linux-gnu-strip \
	ARCH=arm64 ASM_INCLUDE=/usr/aarch64-linux-gnu/include LDFLAGS="-L$$sysroot/usr/lib/aarch64-linux-gnu" \
	CFLAGS="$(CFLAGS) -ffile-prefix-map=$$sysroot= -isystem $$sysroot/usr/include -isystem $$sysroot/usr/include/aarch64-linux-gnu"
endef

.PHONY: static static-$(MACHINE) static-aarch64 lab-aarch64
static-$(MACHINE): $(BUILD)/nagletrace-static
	@$(call install_static,$(MACHINE),.)

ifneq ($(CROSS_PACKAGES),)
static-aarch64:
	+@$(CROSS) $(BUILD)/static/aarch64/nagletrace-static
	@$(call install_static,aarch64,static/aarch64)

lab-aarch64:
	+@$(CROSS) $(BUILD)/static/aarch64/nagle-lab-static
endif

# ---- tests ----

# its stacks are to be found by DWARF; arm64's compiler keeps frame pointers else
$(BUILD)/nagle-lab-static: $(LAB) $(wildcard tests/lab/*.h) | $(BUILD)/userspace
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -fomit-frame-pointer $(WARN) -std=gnu11 -D_GNU_SOURCE -pthread -static $(LAB) $(LDFLAGS) -ljson-c -luring -o $@

$(BUILD)/nagle-lab: $(LAB) $(wildcard tests/lab/*.h) | $(BUILD)/userspace
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(WARN) -std=gnu11 -D_GNU_SOURCE -pthread $(LAB) -ljson-c -luring -o $@

$(BUILD)/soak: tests/soak.c $(addprefix $(BUILD)/userspace/summary/,window.o aggregate.o series.o)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MF $@.d $(filter %.c %.o,$^) -o $@

# the tracer on a machine that hides timers from it; what includes the programs is compiled anew, the rest is the same
BLIND_SOURCES := $(shell grep -l nagletrace.skel.h userspace/*/*.c)
BLIND_OBJECTS := $(BLIND_SOURCES:userspace/%.c=$(BUILD)/blind/%.o)

BLIND_SKELETONS := $(BUILD)/blind/nagletrace.skel.h $(BUILD)/blind/probed.skel.h

$(BLIND_SKELETONS): $(BUILD)/blind/%.skel.h: tests/live/blind.bpf.c $(wildcard bpf/*)
	$(call say,BPF,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(BPF_COMPILE) -DNT_DIRECT=$(if $(filter probed,$*),false,true) -c $< -o $(@D)/$*.bpf.o
	$(Q)$(BPFTOOL) gen skeleton $(@D)/$*.bpf.o name $*_bpf > $@

$(BUILD)/blind/%.o: userspace/%.c $(wildcard userspace/*/*.h bpf/*.h) $(BLIND_SKELETONS) $(BUILD)/version.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -I$(BUILD)/blind $(ALL_CFLAGS) -c $< -o $@

$(BUILD)/nagletrace-blind: $(filter-out $(BLIND_SOURCES:userspace/%.c=$(BUILD)/userspace/%.o),$(OBJECTS)) $(BLIND_OBJECTS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(LDFLAGS) $(LIBS) $(SCREEN_LIBS) -o $@

# the tracer on a kernel that lacks hooks
$(BUILD)/nagletrace-gaps: tests/live/gaps.c $(filter-out $(BUILD)/userspace/attach/hooks.o,$(OBJECTS))
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MF $@.d $< $(filter %.o,$^) $(LDFLAGS) $(LIBS) $(SCREEN_LIBS) -o $@

# what the programs would see, written down: tests/model/record.py
$(BUILD)/model/recorder.skel.h: tests/model/recorder.bpf.c tests/model/recorded.h bpf/vmlinux_min.h bpf/timers.h
	$(call say,BPF,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(BPF_COMPILE) -c $< -o $(@D)/recorder.bpf.o
	$(Q)$(BPFTOOL) gen skeleton $(@D)/recorder.bpf.o name recorder_bpf > $@

$(BUILD)/model/recorder: tests/model/recorder.c $(BUILD)/model/recorder.skel.h $(filter-out $(BUILD)/userspace/cmd/main.o,$(OBJECTS))
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(filter %.c %.o,$^) $(LDFLAGS) $(LIBS) $(SCREEN_LIBS) -o $@

$(BUILD)/hostile-stacks: tests/live/hostile_stacks.c | $(BUILD)/userspace
	$(call say,LINK,$@)
	$(Q)$(CC) -g -O1 $(WARN) -std=gnu11 -D_GNU_SOURCE -pthread $< -o $@

# its calls are to be frames of their own
$(BUILD)/many-stacks: tests/live/many_stacks.c | $(BUILD)/userspace
	$(call say,LINK,$@)
	$(Q)$(CC) -g -O1 $(WARN) -std=gnu11 -D_GNU_SOURCE -fno-omit-frame-pointer -fno-crossjumping \
		-fno-optimize-sibling-calls $< -o $@

$(BUILD)/bench/load: tests/bench/load.c
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $< -o $@

$(BUILD)/bench/empty.skel.h: tests/bench/empty.bpf.c
	$(call say,BPF,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(BPF_COMPILE) -c $< -o $(@D)/empty.bpf.o
	$(Q)$(BPFTOOL) gen skeleton $(@D)/empty.bpf.o name empty_bpf > $@

$(BUILD)/bench/empty: tests/bench/empty.c $(BUILD)/bench/empty.skel.h $(BUILD)/userspace/attach/hooks.o
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $< $(BUILD)/userspace/attach/hooks.o -lbpf -o $@

# each test in C names the sources that it is linked with in lines `// links: userspace/x.c -lname`
links = $(shell sed -n 's,^// links: ,,p' $(1))
linked = $(patsubst %.c,$(BUILD)/$(1)/%.o,$(2) $(filter %.c,$(call links,$(2))))
TEST_CFLAGS := $(SANITIZE) $(WARN) -std=gnu11 -D_GNU_SOURCE -I$(BUILD) -Iuserspace -I. -Ibpf

# each source is compiled once with sanitizers for all of them, and once more for the fuzzers
$(BUILD)/asan/%.o: %.c | $(BPF_SKELETONS) $(BUILD)/version.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(TEST_CFLAGS) -MMD -c $< -o $@

$(BUILD)/fuzzer/%.o: %.c | $(BPF_SKELETONS) $(BUILD)/version.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(TEST_CFLAGS) -fsanitize=fuzzer-no-link -MMD -c $< -o $@

# the programs of bpf/ for the host: the shim stands before libbpf's headers, and what clang alone knows is no matter
$(BUILD)/asan/tests/model/%.o: TEST_CFLAGS := $(SANITIZE) -g1 -fno-sanitize=alignment -Wall -Werror -Wno-unknown-pragmas \
	-Wno-unused -Wno-attributes -std=gnu11 -D_GNU_SOURCE -D__TARGET_ARCH_$(ARCH) -Itests/model/shim -Ibpf

.SECONDEXPANSION:
$(UNITS): $(BUILD)/%: $$(call linked,asan,tests/%.c)
	$(call say,UNIT,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(SANITIZE) $^ $(filter -l%,$(call links,tests/$*.c)) -lcmocka $(LIBS) -o $@

$(FUZZERS): $(BUILD)/%: $$(call linked,fuzzer,tests/%.c)
	$(call say,FUZZ,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(SANITIZE) -fsanitize=fuzzer $^ $(filter -l%,$(call links,tests/$*.c)) $(LIBS) -o $@

# a header that is gone since the last build: what was made of it is made anew
%.h: ;
-include $(wildcard $(BUILD)/*.d $(addprefix $(BUILD)/,userspace/*/*.d $(addsuffix .d,asan/userspace/*/* fuzzer/userspace/*/* asan/tests/*/* fuzzer/tests/*/*)))
