# SPDX-License-Identifier: GPL-2.0
# `make help` lists the targets. Everything that is built lies under build/.

BUILD   := build
prefix  ?= /usr/local
sbindir ?= $(prefix)/sbin
docdir  ?= $(prefix)/share/doc/nagletrace
DESTDIR ?=

CC      ?= gcc
CLANG   ?= clang
BPFTOOL ?= $(firstword $(wildcard /usr/sbin/bpftool /sbin/bpftool) bpftool)
SUDO    := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
ARCH    := $(shell uname -m | sed 's/x86_64/x86/; s/aarch64/arm64/')
MULTIARCH := $(shell $(CC) -print-multiarch 2>/dev/null)

CFLAGS  ?= -O2 -g
WARN    := -Wall -Wextra -Werror
ALL_CFLAGS := $(CFLAGS) $(WARN) -std=gnu11 -D_GNU_SOURCE -I$(BUILD) -Iuserspace
LIBS    := -lbpf -levent_core -lcap -ljson-c -ldw -lelf -lz
SANITIZE := -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all

ifeq ($(V),1)
Q :=
say :=
else
Q := @
say = @printf '  %-8s %s\n' $(1) $(2);
endif

# ---- what is needed, as Debian calls it ----

BUILD_PACKAGES := gcc libc6-dev clang bpftool libbpf-dev libelf-dev zlib1g-dev libdw-dev libjson-c-dev \
                  libevent-dev uthash-dev libcap-dev
TEST_PACKAGES  := libcmocka-dev liburing-dev tcpdump python3-dpkt python3 python3-venv python3-pytest python3-jsonschema iproute2 procps \
                  nginx-light memcached python3-pymemcache socat libhttp-daemon-perl \
                  util-linux file qemu-system-x86 busybox-static kmod

SOURCES := $(wildcard userspace/*.c)
OBJECTS := $(SOURCES:userspace/%.c=$(BUILD)/userspace/%.o)
LAB     := $(wildcard tests/lab/*.c)
UNITS   := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(wildcard tests/unit/test_*.c))

.DEFAULT_GOAL := build
.PHONY: help deps deps-test build demo test test-unit test-live test-guest bench install uninstall clean format
.DELETE_ON_ERROR:

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

deps: ## install what the build needs (apt), or say what is wanted
	@tests/deps.sh $(BUILD_PACKAGES)

deps-test: ## install what the tests need too
	@tests/deps.sh $(BUILD_PACKAGES) $(TEST_PACKAGES)

build: deps ## build build/nagletrace
	@$(MAKE) --no-print-directory $(BUILD)/nagletrace

demo: deps ## trace a program that stalls, and print what nagletrace says of it
	@$(MAKE) --no-print-directory $(BUILD)/nagletrace $(BUILD)/nagle-lab
	@$(SUDO) tests/demo.sh $(BUILD)/nagletrace $(BUILD)/nagle-lab

test: deps-test ## run every test; ends with counts of passed, failed and skipped
	@$(MAKE) --no-print-directory all-for-tests
	@$(SUDO) /usr/bin/python3 tests/run.py

test-unit test-live test-guest: test-%: deps-test ## one part of the tests; T=pattern chooses among them
	@$(MAKE) --no-print-directory all-for-tests
	@$(SUDO) /usr/bin/python3 tests/run.py $* $(if $(T),-k '$(T)')

test-kernels: deps-test ## the live tests in guests with Debian's 5.10, 6.1, 6.12 and newest kernel; REUSE=1: not again what ran
	@$(MAKE) --no-print-directory all-for-tests
	@$(SUDO) /usr/bin/python3 tests/run.py kernels $(if $(REUSE),--reuse) $(if $(T),-k '$(T)')

test-kernel: deps-test ## one of them: K=6.1; T=pattern chooses among the tests
	@$(MAKE) --no-print-directory all-for-tests
	@$(SUDO) /usr/bin/python3 tests/run.py kernels --kernel $(or $(K),6.1) $(if $(T),-k '$(T)')

experiments: deps-test ## write docs/experiments.md: published figures, what the lab measures, what is said of it
	@$(MAKE) --no-print-directory all-for-tests
	@$(SUDO) /usr/bin/python3 tests/experiments.py

kernels-table: ## put the table of the last test-kernels into the README
	@/usr/bin/python3 tests/run.py table

.PHONY: all-for-tests test-kernels test-kernel experiments kernels-table
all-for-tests: $(BUILD)/nagletrace $(BUILD)/nagle-lab $(UNITS)

install: build ## install to DESTDIR and prefix (default /usr/local)
	install -D -m 0755 $(BUILD)/nagletrace $(DESTDIR)$(sbindir)/nagletrace
	install -D -m 0644 README.md $(DESTDIR)$(docdir)/README.md
	install -D -m 0644 userspace/nagletrace.schema.json $(DESTDIR)$(docdir)/nagletrace.schema.json

uninstall: ## remove what install put there
	rm -f $(DESTDIR)$(sbindir)/nagletrace $(DESTDIR)$(docdir)/README.md \
		$(DESTDIR)$(docdir)/nagletrace.schema.json
	-rmdir $(DESTDIR)$(docdir) 2>/dev/null

clean: ## remove build/
	rm -rf $(BUILD)

format: ## format the C sources as .clang-format says
	clang-format -i bpf/*.[ch] userspace/*.[ch] tests/lab/*.[ch] tests/unit/*.[ch]

# ---- the kernel side ----

$(BUILD)/nagletrace.bpf.o: bpf/nagletrace.bpf.c | $(BUILD)/userspace
	$(call say,BPF,$@)
	$(Q)$(CLANG) -g -O2 $(WARN) -Wno-unused-parameter -target bpf -D__TARGET_ARCH_$(ARCH) \
		$(if $(MULTIARCH),-I/usr/include/$(MULTIARCH)) -Ibpf -MMD -c $< -o $@

$(BUILD)/nagletrace.skel.h: $(BUILD)/nagletrace.bpf.o
	$(call say,SKEL,$@)
	$(Q)$(BPFTOOL) gen skeleton $< name nagletrace_bpf > $@

# ---- user space ----

$(BUILD)/userspace $(BUILD)/unit:
	$(Q)mkdir -p $@

$(BUILD)/userspace/%.o: userspace/%.c $(BUILD)/nagletrace.skel.h | $(BUILD)/userspace
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -c $< -o $@

$(BUILD)/userspace/schema.o: ALL_CFLAGS += -Wa,-Iuserspace
$(BUILD)/userspace/schema.o: userspace/nagletrace.schema.json

$(BUILD)/nagletrace: $(OBJECTS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(LDFLAGS) $(LIBS) -o $@

# ---- tests ----

$(BUILD)/nagle-lab: $(LAB) $(wildcard tests/lab/*.h) | $(BUILD)/userspace
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(WARN) -std=gnu11 -D_GNU_SOURCE -pthread $(LAB) -ljson-c -luring -o $@

# each unit test names the sources that it is linked with in a line `// links: userspace/x.c`
$(BUILD)/unit/%: tests/unit/%.c $(wildcard userspace/*.[ch] bpf/*.h tests/unit/*.h) \
		$(BUILD)/nagletrace.skel.h | $(BUILD)/unit
	$(call say,UNIT,$@)
	$(Q)$(CC) $(SANITIZE) $(WARN) -std=gnu11 -D_GNU_SOURCE -I$(BUILD) -Iuserspace -Ibpf $< \
		$(shell sed -n 's,^// links: ,,p' $<) -lcmocka $(LIBS) -o $@

-include $(wildcard $(BUILD)/*.d $(BUILD)/userspace/*.d)
