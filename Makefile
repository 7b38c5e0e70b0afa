# cpl3: the disk tier of an LLM server's KV cache, as a file system.   `make help` lists the targets.
#
# Everything built goes below build/: the ordinary variant directly into it, the others into
# build/<variant> (make VARIANT=asan, tsan or debug). Sources are found by wildcard: a new file in
# core/, fs/, tools/ or tests/ needs no change here.

VARIANT ?= normal
B := build$(if $(filter-out normal,$(VARIANT)),/$(VARIANT))

WERROR ?= -Werror
# Without maybe-uninitialized: it cannot follow that ret_ parameters are set exactly on success.
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
            -Wno-maybe-uninitialized $(WERROR)

OPTIMIZE_normal := -O2 -g
OPTIMIZE_debug  := -O0 -g3
OPTIMIZE_asan   := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined \
                   -fno-sanitize-recover=all
# TSan does not understand atomic_thread_fence and says so as a warning.
OPTIMIZE_tsan   := -O1 -g -fno-omit-frame-pointer -fsanitize=thread -Wno-tsan
OPTIMIZE := $(OPTIMIZE_$(VARIANT))
$(if $(OPTIMIZE),,$(error VARIANT=$(VARIANT) is unknown: normal, debug, asan or tsan))

PKG_CONFIG ?= pkg-config
libs   = $(shell $(PKG_CONFIG) --libs $(1) 2>/dev/null || echo $(2))
cflags = $(shell $(PKG_CONFIG) --cflags $(1) 2>/dev/null)
CORE_LIBS := $(call libs,lmdb libxxhash liburing,-llmdb -lxxhash -luring) -lpthread
FUSE_LIBS := $(call libs,fuse3,-lfuse3)
TOOL_LIBS := $(call libs,jansson,-ljansson)
TEST_LIBS := $(call libs,criterion,-lcriterion) -lm

# What --version prints.
VERSION := 1
CPPFLAGS := -D_GNU_SOURCE -DCPL3_VERSION='"$(VERSION)"' -I. $(call cflags,fuse3 lmdb libxxhash liburing jansson criterion)
# CFLAGS and LDFLAGS stay the user's.
COMPILE = $(CC) -std=gnu17 $(CPPFLAGS) $(WARNINGS) $(OPTIMIZE) $(CFLAGS)
LINK    = $(CC) $(OPTIMIZE) $(CFLAGS) $(LDFLAGS)
export CC CPPFLAGS
# make V=1 shows the commands.
Q := $(if $(V),,@)
SAY = @$(if $(V),:,echo) '  $(1)'

# ---- sources ---------------------------------------------------------------------------------------

CORE_C    := $(wildcard core/*.c)
FS_C      := $(filter-out fs/main.c,$(wildcard fs/*.c))
TOOLS_C   := $(filter-out tools/cpl3.c,$(wildcard tools/*.c))
# sim_*.c stand in for core files in simulations: they must not be linked into ordinary tests.
SUPPORT_C := $(filter-out tests/support/sim_%,$(wildcard tests/support/*.c))
SUITES    := $(foreach s,unit store mount,$(if $(wildcard tests/$(s)/*.c),$(s)))
STRESS    := $(patsubst tests/stress/%.c,$(B)/stress/%,$(wildcard tests/stress/*.c))
FORMATTED := $(wildcard $(foreach d,core fs tools tests/*,$(d)/*.c $(d)/*.h))

objects = $(patsubst %.c,$(B)/obj/%.o,$(1))

# ---- building --------------------------------------------------------------------------------------

.DEFAULT_GOAL := all
.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all deps test check check-layers check-format check-tsan check-clients check-posix \
        check-scale bench bench-deps bench-quick demo install clean help build-tests build-clients \
        build-stress FORCE

all: $(B)/cpl3fs $(B)/cpl3 ## build/cpl3fs (the daemon) and build/cpl3 (the tool); also VARIANT=asan|tsan|debug

$(B)/cpl3fs: $(B)/obj/fs/main.o $(B)/libfs.a $(B)/libcore.a
	$(call SAY,link $@)
	$(Q)$(LINK) -o $@ $^ $(FUSE_LIBS) $(CORE_LIBS)

$(B)/cpl3: $(B)/obj/tools/cpl3.o $(B)/libtools.a $(B)/libcore.a
	$(call SAY,link $@)
	$(Q)$(LINK) -o $@ $^ $(TOOL_LIBS) $(CORE_LIBS)

# Archives, so that each program takes only what it uses. Made anew when the set of files changes.
define archive
$(B)/lib$(1).a: $(call objects,$(2)) $(B)/$(1).list
	@rm -f $$@
	@$(AR) rcs $$@ $$(filter %.o,$$^)
$(B)/$(1).list: FORCE
	@mkdir -p $$(@D)
	@echo '$(2)' | cmp -s - $$@ || echo '$(2)' >$$@
endef
$(eval $(call archive,core,$(CORE_C)))
$(eval $(call archive,fs,$(FS_C)))
$(eval $(call archive,tools,$(TOOLS_C)))
$(eval $(call archive,support,$(SUPPORT_C)))

# A change of compiler or flags (WERROR=, CFLAGS=) compiles everything again.
$(B)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(COMPILE)' | cmp -s - $@ || echo '$(COMPILE)' >$@

$(B)/obj/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call SAY,compile $@)
	$(Q)$(COMPILE) -MMD -MP -c -o $@ $<

-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)

# ---- tests -----------------------------------------------------------------------------------------

TEST_ARCHIVES := $(B)/libsupport.a $(B)/libfs.a $(B)/libtools.a $(B)/libcore.a
define suite
$(B)/test-$(1): $(call objects,$(wildcard tests/$(1)/*.c)) $(B)/$(1)-tests.list $(TEST_ARCHIVES)
	$$(call SAY,link $$@)
	$$(Q)$$(LINK) -o $$@ $$(filter %.o,$$^) -Wl,--start-group $(TEST_ARCHIVES) -Wl,--end-group \
	    $$(TEST_LIBS) $$(FUSE_LIBS) $$(TOOL_LIBS) $$(CORE_LIBS)
$(B)/$(1)-tests.list: FORCE
	@mkdir -p $$(@D)
	@echo '$(wildcard tests/$(1)/*.c)' | cmp -s - $$@ || echo '$(wildcard tests/$(1)/*.c)' >$$@
endef
$(foreach s,$(SUITES),$(eval $(call suite,$(s))))

# Criterion does not run under TSan: each stress test has its own main().
$(B)/stress/%: $(B)/obj/tests/stress/%.o $(TEST_ARCHIVES)
	@mkdir -p $(@D)
	$(call SAY,link $@)
	$(Q)$(LINK) -o $@ $(filter %.o,$^) -Wl,--start-group $(TEST_ARCHIVES) -Wl,--end-group \
	    -Wl,--as-needed $(TEST_LIBS) -Wl,--no-as-needed $(FUSE_LIBS) $(TOOL_LIBS) $(CORE_LIBS)

build-tests: all $(SUITES:%=$(B)/test-%)
build-stress: all $(STRESS)

test: deps ## unit, store and mount tests, ordinary and under ASan + UBSan; the last line is the totals
	@$(MAKE) --no-print-directory build-tests
	@$(MAKE) --no-print-directory build-tests VARIANT=asan
	@tests/support/run_tests build build/asan

check: check-layers check-format build-tests ## the quick one for every commit: layers, format, unit and store tests
	@tests/support/run_tests --suite unit --suite store $(B)

check-layers: ## who may include what, headers compile alone, lengths, words that may not stay
	@tools/check-layers

check-format: ## clang-format agrees with every C file
	@clang-format --dry-run -Werror $(FORMATTED)

check-tsan: ## tests/stress under ThreadSanitizer, with their short default times
	@$(MAKE) --no-print-directory build-stress VARIANT=tsan
	@tests/support/run_stress $(STRESS:$(B)/stress/%=build/tsan/stress/%)

# What the clients load, and what is loaded into the daemon to make its disk fail.
CLIENT_LIBRARIES := $(patsubst tests/clients/%.c,$(B)/clients/%.so,$(wildcard tests/clients/*.c))
$(B)/clients/%.so: tests/clients/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call SAY,link $@)
	$(Q)$(CC) -std=gnu17 $(CPPFLAGS) $(WARNINGS) -O2 -g $(CFLAGS) -fPIC -shared -o $@ $< \
	    -Wl,--no-as-needed -laio -luring

build-clients: all $(CLIENT_LIBRARIES)

check-clients: build-clients ## what file-based KV backends do, replayed, and seven faults of each; CLIENT_FLAGS=--quick
	@CPL3_DAEMON=$(B)/cpl3fs tests/clients/run all $(CLIENT_FLAGS)

# The long forms; their short ones are among the mount tests.
check-posix: deps ## fio, stress-ng, 100,000 operations against a model, eight processes for a minute; 10 minutes
	@tools/install-deps fio stress-ng
	@$(MAKE) --no-print-directory build-tests
	@CPL3_TEST_OPERATIONS=100000 CPL3_TEST_SECONDS=60 \
	    tests/support/run_tests --suite mount --filter 'posix_*/*' $(B)
	@CPL3_DAEMON=$(B)/cpl3fs tests/posix/fio_verify
	@CPL3_DAEMON=$(B)/cpl3fs tests/posix/stress_ng

check-scale: all ## a million small files: listings, lookups, memory; needs root; SCALE_FLAGS=
	@tests/scale/run $(SCALE_FLAGS)

# ---- benchmark -------------------------------------------------------------------------------------

# The program that measures; what drives it and reports is tests/bench/run.
$(B)/bench/measure: $(call objects,$(wildcard tests/bench/*.c)) $(B)/libtools.a $(B)/libcore.a
	@mkdir -p $(@D)
	$(call SAY,link $@)
	$(Q)$(LINK) -o $@ $^ -lrocksdb $(TOOL_LIBS) $(CORE_LIBS)

bench-deps:
	@tools/install-deps gnuplot-nox strace librocksdb-dev

bench: bench-deps all $(B)/bench/measure ## cpl3 against ext4 and the raw disk, 45 minutes; BENCH_DIR= (default build/bench), BENCH_FLAGS=--check
	@tests/bench/run $(BENCH_FLAGS)

bench-quick: bench-deps all $(B)/bench/measure ## the same with fewer sizes and repetitions, 5 minutes
	@tests/bench/run --quick $(BENCH_FLAGS)

# ---- the rest --------------------------------------------------------------------------------------

deps: ## install what is missing (Debian packages; needs root only if something is)
	@tools/install-deps

# Built by a make of its own: this one asked pkg-config before the packages were there.
demo: deps ## mount a small store, use it, restart it, damage it; leaves the mount up to play with
	@$(MAKE) --no-print-directory all
	@tools/demo.sh

PREFIX     ?= /usr/local
DESTDIR    ?=
BINDIR     := $(DESTDIR)$(PREFIX)/bin
SBINDIR    := $(DESTDIR)$(PREFIX)/sbin
LIBEXECDIR := $(DESTDIR)$(PREFIX)/libexec/cpl3
MANDIR     := $(DESTDIR)$(PREFIX)/share/man

install: all ## into DESTDIR and PREFIX (/usr/local; mount -t cpl3 and fstab need PREFIX=/usr)
	install -D -m 755 $(B)/cpl3fs $(LIBEXECDIR)/cpl3fs
	install -D -m 755 $(B)/cpl3 $(BINDIR)/cpl3
	install -D -m 755 mount.cpl3 $(SBINDIR)/mount.cpl3
	install -D -m 644 -t $(MANDIR)/man8 $(wildcard fs/*.8)

clean: ## remove build/
	@! grep -qF ' $(CURDIR)/build/' /proc/mounts || \
	    { echo 'clean: something below build/ is mounted: unmount it first' >&2; exit 1; }
	rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile
