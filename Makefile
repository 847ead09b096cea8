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

CC      ?= gcc
STRIP   ?= strip
CLANG   ?= clang
BPFTOOL ?= $(firstword $(wildcard /usr/sbin/bpftool /sbin/bpftool) bpftool)
SUDO    := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
ARCH    := $(shell uname -m | sed 's/x86_64/x86/; s/aarch64/arm64/')
MACHINE := $(shell uname -m)
MULTIARCH := $(shell $(CC) -print-multiarch 2>/dev/null)
ASM_INCLUDE := $(if $(MULTIARCH),/usr/include/$(MULTIARCH))

CFLAGS  ?= -O2 -g
WARN    := -Wall -Wextra -Werror
# where it was built does not stand in what is built
PREFIX_MAP := -ffile-prefix-map=$(CURDIR)=.
ALL_CFLAGS := $(CPPFLAGS) $(CFLAGS) $(PREFIX_MAP) $(WARN) -std=gnu11 -D_GNU_SOURCE -I$(BUILD) -Iuserspace
LIBS    := -lbpf -levent_core -lcap -lseccomp -ljson-c -ldw -lelf -lz
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
DEB_PACKAGES   := build-essential debhelper dh-python python3
LAB_PACKAGES   := liburing-dev
MONITORING_PACKAGES := python3 python3-prometheus-client python3-bcrypt python3-yaml python3-jinja2 prometheus \
                  prometheus-alertmanager iproute2
TEST_PACKAGES  := $(LAB_PACKAGES) $(MONITORING_PACKAGES) $(DEB_PACKAGES) debootstrap lintian libcmocka-dev tcpdump \
                  python3-dpkt python3-venv \
                  python3-pytest python3-pyte python3-jsonschema libclang-rt-dev procps strace nginx-light memcached \
                  python3-pymemcache socat libhttp-daemon-perl openssl util-linux file qemu-system-x86 busybox-static \
                  git kmod systemd chromium python3-bpfcc default-jdk-headless mandoc zsh jq curl

STATIC_PACKAGES := binutils liblzma-dev libbz2-dev libzstd-dev ncurses-bin
ifeq ($(MACHINE),x86_64)
CROSS_PACKAGES := gcc-aarch64-linux-gnu binutils-aarch64-linux-gnu libc6-dev-arm64-cross python3 debian-archive-keyring
endif
# of these arm64's are unpacked in the cache, not installed
SYSROOT_PACKAGES := libbpf-dev libelf-dev zlib1g-dev libdw-dev libjson-c-dev libevent-dev uthash-dev libcap-dev \
                  libseccomp-dev libncurses-dev liblzma-dev libbz2-dev libzstd-dev liburing-dev
ARM64_PACKAGES := qemu-system-arm busybox-static python3-pytest $(CROSS_PACKAGES)

BENCH_PACKAGES := bpftrace bpfcc-tools tcpdump util-linux iproute2 python3

# what is installed as nagletrace-NAME, and starts the module of that name in exporters/nagletrace_exporters
PYTHON_COMMANDS := exporter report flame

MAN_PAGES := $(wildcard docs/man/*.[18])
COMMAND_PAGES := docs/man/nagletrace.8
TOP_DOCS := README.md CHANGELOG.md SECURITY.md LICENSE

SOURCES := $(filter-out userspace/static.c,$(wildcard userspace/*.c))
OBJECTS := $(SOURCES:userspace/%.c=$(BUILD)/userspace/%.o)
LAB     := $(wildcard tests/lab/*.c)
FUZZERS := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
UNITS   := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(wildcard tests/unit/test_*.c))

.DEFAULT_GOAL := build
PARTS := test-unit test-live test-monitoring test-packages test-guest
STATIC_MACHINES := $(MACHINE) $(if $(CROSS_PACKAGES),aarch64)
VERSION := $(shell cat VERSION)
.PHONY: help deps deps-test build demo demo-monitoring test $(PARTS) bench install install-command install-exporters \
	uninstall dist deb clean format
.DELETE_ON_ERROR:

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p; s,^\$$(PARTS):.*## \(.*\),  make $(PARTS)\t\1,p' \
		$(MAKEFILE_LIST) | expand -t 20

deps: ## install what the build needs (apt), or say what is wanted
	@tests/deps.sh $(BUILD_PACKAGES)

deps-test: ## install what the tests need too
	@tests/deps.sh $(BUILD_PACKAGES) $(TEST_PACKAGES) $(STATIC_PACKAGES)

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

test: deps-test ## run every test; ends with counts of passed, failed and skipped
	@tests/deps.sh $(ARM64_PACKAGES)
	@$(MAKE) --no-print-directory all-for-tests
	@$(SUDO) /usr/bin/python3 tests/run.py

$(PARTS): test-%: deps-test ## one part of the tests; T=pattern chooses among them
	@$(MAKE) --no-print-directory all-for-tests
	@$(SUDO) /usr/bin/python3 tests/run.py $* $(if $(T),-k '$(T)')

test-arm64: deps-test ## the static binary on arm64, on Debian's 6.1 and 6.12 in an emulated machine; T=pattern
	@tests/deps.sh $(ARM64_PACKAGES)
	@$(MAKE) --no-print-directory all-for-tests
	@$(SUDO) /usr/bin/python3 tests/run.py arm64 $(if $(T),-k '$(T)')

test-kernels: deps-test ## the live tests in guests with Debian's 5.10, 6.1, 6.12 and newest kernel; REUSE=1: not again what ran
	@$(MAKE) --no-print-directory all-for-tests
	@$(SUDO) /usr/bin/python3 tests/run.py kernels $(if $(REUSE),--reuse) $(if $(T),-k '$(T)')

test-kernel: deps-test ## one of them: K=6.1; T=pattern chooses among the tests
	@$(MAKE) --no-print-directory all-for-tests
	@$(SUDO) /usr/bin/python3 tests/run.py kernels --kernel $(or $(K),6.1) $(if $(T),-k '$(T)')

bench: ## what tracing costs, side by side with its peers: docs/performance.md and build/bench/
	@tests/deps.sh $(BUILD_PACKAGES) $(BENCH_PACKAGES)
	@$(MAKE) --no-print-directory $(BUILD)/nagletrace $(BUILD)/bench/load $(BUILD)/bench/empty
	@$(SUDO) /usr/bin/python3 tests/bench/bench.py

fuzz: deps-test ## what comes from outside, SECONDS=600 for each; what it finds new goes into tests/fuzz/corpus
	@$(MAKE) --no-print-directory $(FUZZERS)
	@/usr/bin/python3 tests/run.py fuzz --seconds $(or $(SECONDS),600)

experiments: deps-test ## write docs/experiments.md: published figures, what the lab measures, what is said of it
	@$(MAKE) --no-print-directory all-for-tests
	@$(SUDO) /usr/bin/python3 tests/experiments.py

pictures: deps-test ## write docs/pictures: the report and the flame graph of a real trace
	@$(MAKE) --no-print-directory all-for-tests
	@$(SUDO) /usr/bin/python3 tests/pictures.py

pasted: deps-test ## renew the outputs that README and docs show, from real runs; OUTPUT=name: that one, and what is of the same run
	@$(MAKE) --no-print-directory $(BUILD)/nagletrace $(BUILD)/nagle-lab
	@$(SUDO) /usr/bin/python3 tests/pasted.py $(OUTPUT)

dashboard: ## write dashboards/grafana/nagletrace.json by its generator
	@tools=$$(/usr/bin/python3 tests/tools.py) && mkdir -p $(BUILD) && \
	$$tools/python3 dashboards/grafana/generate.py >$(BUILD)/nagletrace.json && \
	cp $(BUILD)/nagletrace.json dashboards/grafana/nagletrace.json

kernels-table: ## put the table of the last test-kernels into the README
	@/usr/bin/python3 tests/run.py table

.PHONY: all-for-tests test-arm64 test-kernels test-kernel fuzz experiments pictures pasted dashboard kernels-table
all-for-tests: static-$(MACHINE) $(BUILD)/nagletrace $(BUILD)/nagle-lab $(BUILD)/bench/load $(BUILD)/bench/empty $(BUILD)/soak $(BUILD)/many-stacks $(UNITS) $(FUZZERS)

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

# report and top are for users too, whose PATH has no sbin on Debian: the command is in bin as well, as a link
install-command: build
	install -D -m 0755 $(BUILD)/nagletrace $(DESTDIR)$(sbindir)/nagletrace
	install -d $(DESTDIR)$(bindir)
	[ $(DESTDIR)$(sbindir)/nagletrace -ef $(DESTDIR)$(bindir)/nagletrace ] || \
		ln -srf $(DESTDIR)$(sbindir)/nagletrace $(DESTDIR)$(bindir)/nagletrace
	$(call install-units,nagletrace)
	install -D -m 0644 packaging/systemd/nagletrace.sysusers $(DESTDIR)$(sysusersdir)/nagletrace.conf
	$(call install-pages,$(COMMAND_PAGES))
	install -D -m 0644 packaging/completion/nagletrace.bash $(DESTDIR)$(bashcompletiondir)/nagletrace
	install -D -m 0644 packaging/completion/_nagletrace $(DESTDIR)$(zshcompletiondir)/_nagletrace
	install -D -m 0644 -t $(DESTDIR)$(docdir) $(TOP_DOCS) userspace/nagletrace.schema.json docs/*.md
	cd $(DESTDIR)$(docdir) && sed -i -E 's,\]\((docs|\.\.)/,](,g' $(filter %.md,$(TOP_DOCS)) $(notdir $(wildcard docs/*.md))
	install -D -m 0644 -t $(DESTDIR)$(docdir)/runbooks docs/runbooks/*.md
	install -D -m 0644 -t $(DESTDIR)$(docdir)/pictures docs/pictures/*.png
	install -D -m 0644 -t $(DESTDIR)$(docdir)/kubernetes packaging/kubernetes/*.yaml

install-exporters:
	install -D -m 0644 -t $(DESTDIR)$(datadir)/exporters/nagletrace_exporters \
		exporters/nagletrace_exporters/*.py exporters/nagletrace_exporters/py.typed exporters/nagletrace_exporters/VERSION
	install -D -m 0644 -t $(DESTDIR)$(datadir)/exporters/nagletrace_exporters/templates \
		exporters/nagletrace_exporters/templates/*
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
	install -m 0644 -t $(DESTDIR)$(monitoringdocdir)/grafana dashboards/grafana/nagletrace.json
	cp -r --no-preserve=mode,ownership dashboards/grafana/provisioning $(DESTDIR)$(monitoringdocdir)/grafana/

uninstall: ## remove what install put there
	rm -f $(addprefix $(DESTDIR),$(sbindir)/nagletrace $(addprefix $(bindir)/,nagletrace $(addprefix nagletrace-,$(PYTHON_COMMANDS))) \
		$(addprefix $(unitdir)/,nagletrace.service nagletrace-exporter.service) $(sysusersdir)/nagletrace.conf \
		$(foreach page,$(MAN_PAGES),$(mandir)/man$(subst .,,$(suffix $(page)))/$(notdir $(page))) \
		$(bashcompletiondir)/nagletrace $(zshcompletiondir)/_nagletrace \
		$(addprefix $(docdir)/,$(TOP_DOCS) nagletrace.schema.json $(notdir $(wildcard docs/*.md))))
	rm -rf $(addprefix $(DESTDIR),$(datadir)/exporters \
		$(addprefix $(docdir)/,runbooks pictures kubernetes) $(addprefix $(monitoringdocdir)/,prometheus grafana))
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

clean: ## remove build/
	rm -rf $(BUILD)

format: ## format the C sources as .clang-format says
	clang-format -i bpf/*.[ch] userspace/*.[ch] tests/lab/*.[ch] tests/unit/*.[ch] tests/fuzz/*.[ch] tests/bench/*.c tests/live/*.c tests/soak.c

# ---- the kernel side ----

$(BUILD)/nagletrace.bpf.o: bpf/nagletrace.bpf.c | $(BUILD)/userspace
	$(call say,BPF,$@)
	$(Q)$(CLANG) -g -O2 $(PREFIX_MAP) $(WARN) -Wno-unused-parameter -target bpf -D__TARGET_ARCH_$(ARCH) \
		$(ASM_INCLUDE:%=-I%) -Ibpf -MMD -c $< -o $@

$(BUILD)/nagletrace.skel.h: $(BUILD)/nagletrace.bpf.o
	$(call say,SKEL,$@)
	$(Q)$(BPFTOOL) gen skeleton $< name nagletrace_bpf > $@

# ---- user space ----

$(BUILD)/userspace $(BUILD)/unit:
	$(Q)mkdir -p $@

$(BUILD)/version.h: VERSION | $(BUILD)/userspace
	$(Q)echo '#define NT_VERSION "$(VERSION)"' >$@

$(BUILD)/userspace/%.o: userspace/%.c $(BUILD)/nagletrace.skel.h $(BUILD)/version.h | $(BUILD)/userspace
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -c $< -o $@

$(BUILD)/userspace/schema.o: ALL_CFLAGS += -Wa,-Iuserspace
$(BUILD)/userspace/schema.o: userspace/nagletrace.schema.json

$(BUILD)/nagletrace: $(OBJECTS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(LDFLAGS) $(LIBS) $(SCREEN_LIBS) -o $@

# ---- the static binary ----

# what is wrapped: userspace/static.c. A function of glibc that would load libraries of the host is a warning.
$(BUILD)/nagletrace-static: $(OBJECTS) $(BUILD)/userspace/static.o
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -static -Wl,--fatal-warnings -Wl,--wrap=dlopen,--wrap=newterm $^ $(LDFLAGS) \
		-Wl,--start-group $(STATIC_LIBS) -Wl,--end-group -o $@.whole
	$(Q)$(STRIP) -o $@ $@.whole

$(BUILD)/userspace/static.o: $(BUILD)/terminfo.h

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

$(BUILD)/soak: tests/soak.c $(wildcard userspace/*.[ch]) | $(BUILD)/userspace
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $< userspace/window.c userspace/aggregate.c userspace/series.c -o $@

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
	$(Q)$(CLANG) -g -O2 $(WARN) -Wno-unused-parameter -target bpf $(ASM_INCLUDE:%=-I%) \
		-c $< -o $(@D)/empty.bpf.o
	$(Q)$(BPFTOOL) gen skeleton $(@D)/empty.bpf.o name empty_bpf > $@

$(BUILD)/bench/empty: tests/bench/empty.c $(BUILD)/bench/empty.skel.h $(BUILD)/userspace/hooks.o
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $< $(BUILD)/userspace/hooks.o -lbpf -o $@

# each unit test names the sources that it is linked with in a line `// links: userspace/x.c`
$(BUILD)/unit/%: tests/unit/%.c $(wildcard userspace/*.[ch] bpf/*.h tests/unit/*.h) \
		$(BUILD)/nagletrace.skel.h $(BUILD)/version.h | $(BUILD)/unit
	$(call say,UNIT,$@)
	$(Q)$(CC) $(SANITIZE) $(WARN) -std=gnu11 -D_GNU_SOURCE -I$(BUILD) -Iuserspace -Ibpf $< \
		$(shell sed -n 's,^// links: ,,p' $<) -lcmocka $(LIBS) -o $@

# likewise
$(BUILD)/fuzz/%: tests/fuzz/%.c $(wildcard userspace/*.[ch] bpf/*.h tests/fuzz/*.h) $(BUILD)/nagletrace.skel.h \
		$(BUILD)/version.h
	$(call say,FUZZ,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(SANITIZE),fuzzer $(WARN) -std=gnu11 -D_GNU_SOURCE -I$(BUILD) -Iuserspace -Ibpf $< \
		$(shell sed -n 's,^// links: ,,p' $<) $(LIBS) -o $@

# a header that is gone since the last build: what was made of it is made anew
%.h: ;
-include $(wildcard $(BUILD)/*.d $(BUILD)/userspace/*.d)
