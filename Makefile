# GNU Make. `make help` lists the targets.
CONFIG   ?= release
CC       := $(if $(filter fuzz,$(CONFIG)),clang,$(if $(filter default,$(origin CC)),gcc,$(CC)))
PREFIX   ?= /usr/local
TRIPLE   := $(shell $(CC) -dumpmachine 2>/dev/null)
MACHINE  := $(firstword $(subst -, ,$(TRIPLE)))
CROSS    := $(if $(filter-out $(shell uname -m),$(MACHINE)),$(TRIPLE)-)
BUILD    := build/$(CONFIG)$(CROSS:$(TRIPLE)-=-$(MACHINE))
PACKAGES := libpcre2-8 jansson hwloc $(if $(filter test check check-numa check-all,$(MAKECMDGOALS)),cmocka)
VERSION  := 0.1.0
COMMIT   := $(shell git describe --always --dirty --exclude='*' 2>/dev/null || echo unknown)
NUMBER   := $(shell git rev-list --count HEAD 2>/dev/null || echo 0)
Q        := $(if $(V),,@)
CPPFLAGS += -Isrc -D_GNU_SOURCE -DTRINE_VERSION='"$(VERSION)"'
WARNINGS := -Wall -Wextra -Wshadow -Wvla -Wconversion -Wno-sign-conversion -Wstrict-prototypes \
            -Wmissing-prototypes -Wpointer-arith $(if $(WERROR),-Werror)
CFLAGS_release := -O2 -g
CFLAGS_debug   := -O0 -g3
CFLAGS_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
CFLAGS_tsan    := -O1 -g -fsanitize=thread
CFLAGS_fuzz    := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
$(if $(CFLAGS_$(CONFIG)),,$(error CONFIG=$(CONFIG): choose one of release, debug, asan, tsan, fuzz))
ALL_CFLAGS := -std=gnu11 -ffp-contract=off -fno-strict-aliasing $(WARNINGS) $(CFLAGS_$(CONFIG)) $(CFLAGS)

# Of another machine than this one: its libraries, and what runs its programs, as scripts/check_arm puts them there.
-include $(if $(CROSS),build/root-$(MACHINE)/cross.mk)
PKG_CONFIG ?= $(CROSS)pkg-config
# Everything but the targets that need no libraries checks that the libraries are there, and that the compiler knows all instruction sets.
ifeq ($(filter deps help clean format check-arm,$(MAKECMDGOALS)),)
MISSING := $(strip $(foreach p,$(PACKAGES),$(shell $(PKG_CONFIG) --exists $(p) 2>/dev/null || echo $(p))))
$(if $(MISSING),$(error missing: $(MISSING); run `$(if $(CROSS),scripts/check_arm --fetch,sh scripts/setup)` once to install what Trine needs))
$(if $(filter x86_64,$(MACHINE)),$(if $(shell $(CC) -mavxvnni -mamx-int8 -E -xc /dev/null >/dev/null 2>&1 || echo old),$(error $(CC) does not know AVX-VNNI and AMX; use gcc 11 or later, or clang 12 or later: make CC=gcc-12)))
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PACKAGES))
PKG_LIBS   := $(shell $(PKG_CONFIG) --libs libpcre2-8 jansson hwloc) -lpthread
endif

# Only kernel files use more than the baseline of the architecture; the suffix of the name says what.
# They have no undefined behaviour to look for but what intrinsics hide, and instrumenting it unrolls badly.
ISA_avx2       := -mavx2 -mfma -mf16c $(if $(filter asan,$(CONFIG)),-fno-sanitize=undefined)
ISA_avxvnni    := $(ISA_avx2) -mavxvnni
ISA_avx512     := $(ISA_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
ISA_avx512vbmi := $(ISA_avx512) -mavx512vbmi
ISA_amx        := $(ISA_avx512vbmi) -mamx-tile -mamx-int8
ISA_neon       := -march=armv8.2-a+dotprod
ISA_i8mm       := $(ISA_neon)+i8mm
FOREIGN  := $(if $(filter x86_64,$(MACHINE)),,avx2 avxvnni avx512 avx512vbmi amx) $(if $(filter aarch64,$(MACHINE)),,neon i8mm)
sources   = $(filter-out $(patsubst %,\%_%.c,$(FOREIGN)),$(wildcard $(1)))

# Fuzzing needs no kernels, and clang takes minutes to instrument them.
LIB_SRC  := $(filter-out src/cli/% $(if $(filter fuzz,$(CONFIG)),src/kernels/%),$(call sources,src/*/*.c src/kernels/*/*.c))
CLI_SRC  := $(wildcard src/cli/*.c)
TEST_SRC := $(call sources,tests/*/test_*.c)
FUZZ_SRC := $(wildcard fuzz/fuzz_*.c)
LIB_OBJ  := $(LIB_SRC:%.c=$(BUILD)/%.o)
CLI_OBJ  := $(CLI_SRC:%.c=$(BUILD)/%.o)
TESTS    := $(TEST_SRC:%.c=$(BUILD)/%)
FUZZERS  := $(FUZZ_SRC:%.c=$(BUILD)/%)
CHECKS   := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/kernels/check*.c))
EMULATED := $(patsubst %.c,$(BUILD)/%.o,$(call sources,tests/kernels/*emulated*.c))
BENCH    := $(patsubst %.c,$(BUILD)/%.o,$(call sources,bench/*.c))
TEST_LIB := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/*.c))

all: $(BUILD)/trine $(BUILD)/trine.1 ## build trine and its manual

$(BUILD)/trine: $(CLI_OBJ)
$(BUILD)/bench/barrier_bench: $(BUILD)/bench/barrier_bench.o
$(BUILD)/bench/kernel_bench: $(filter-out %/barrier_bench.o,$(BENCH)) $(CHECKS)
$(BUILD)/trine $(BUILD)/bench/barrier_bench $(BUILD)/bench/kernel_bench: $(BUILD)/libtrine.a
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(filter %.o,$^) $< $(PKG_LIBS) -lm -o $@

# Results of `bench` name the commit: this file is written, and its object compiled, only when that changes.
$(BUILD)/commit: .FORCE
	@mkdir -p $(@D) && { echo '$(COMMIT) $(NUMBER)' | cmp -s - $@ || echo '$(COMMIT) $(NUMBER)' > $@; }
$(BUILD)/src/cli/build_commit.o: $(BUILD)/commit
$(BUILD)/src/cli/build_commit.o: CPPFLAGS += -DTRINE_COMMIT='"$(COMMIT)"' -DTRINE_BUILD_NUMBER=$(NUMBER)

$(BUILD)/libtrine.a: $(LIB_OBJ)
	$(Q)rm -f $@ && $(CROSS)$(AR) rcs $@ $^

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(if $(Q),@echo "CC $<")
	$(Q)$(CC) $(CPPFLAGS) $(PKG_CFLAGS) $(ALL_CFLAGS) $(ISA_$(lastword $(subst _, ,$*))) -MMD -MP -c $< -o $@

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(TEST_LIB) $(BUILD)/libtrine.a
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(filter-out %.a,$^) $(BUILD)/libtrine.a $(PKG_LIBS) -lcmocka -lm -o $@
# The checks of kernels are also the calls that kernel_bench times. Of commands, what is computed is tested by itself.
$(filter $(BUILD)/tests/kernels/%,$(TESTS)): $(CHECKS)
$(filter %/test_matmul_tiles %/test_kernel_choice,$(TESTS)): $(EMULATED)
$(BUILD)/tests/cli/test_bench_counters: $(BUILD)/src/cli/bench_counters.o $(BUILD)/src/cli/bench_tests.o

$(BUILD)/fuzz/%: $(BUILD)/fuzz/%.o $(BUILD)/libtrine.a
	$(Q)$(CC) $(ALL_CFLAGS) -fsanitize=fuzzer $(LDFLAGS) $^ $(PKG_LIBS) -lm -o $@

$(BUILD)/trine.1: $(BUILD)/trine
	$(Q)$(RUN) $< manual > $@.part && mv $@.part $@

demo: $(BUILD)/trine ## generate text with the model that ships
	$(RUN) $(BUILD)/trine run models/trine-kjv.gguf -p "In the beginning" -n 96 --seed 1

bench: $(BUILD)/bench/kernel_bench ## time all kernels, print the table of docs/measurements/kernels.md
	$(BUILD)/bench/kernel_bench --table

test: all $(TESTS) ## the tests, under three minutes; ASSETS=DIR ORACLE=DIR add the large ones
	@scripts/run_tests $(BUILD) "$(ASSETS)" "$(ORACLE)" $(TESTS)

check: ## what CI runs: tests, sanitisers, fuzz seeds, layers, sizes, format
	@mkdir -p $(BUILD)
	scripts/check_format && scripts/check_includes && scripts/check_sizes
	$(MAKE) test
	$(MAKE) test CONFIG=asan
	$(MAKE) fuzz-seeds CONFIG=fuzz

fuzz-seeds: $(FUZZERS) ## run every fuzz target over its seeds (CONFIG=fuzz)
	for f in $(FUZZERS); do $$f -runs=0 fuzz/seeds/$${f##*fuzz_} || exit 1; done

check-numa: $(TESTS) ## placement and dataflows on machines with several nodes, under QEMU
	scripts/check_numa $(BUILD)

check-arm: ## build for 64-bit ARM, run kernels, tests and the model that ships, under QEMU
	scripts/check_arm

check-all: check check-numa ## check, long barrier runs, and ten minutes of fuzzing per target
	$(BUILD)/tests/machine/test_barrier --long
	for f in $(FUZZ_SRC:fuzz/%.c=%); do $(MAKE) CONFIG=fuzz fuzz-one TARGET=$$f || exit 1; done

fuzz-one: $(FUZZERS)
	mkdir -p $(BUILD)/corpus/$(TARGET) && cd $(BUILD) && fuzz/$(TARGET) -max_total_time=$(or $(SECONDS),600) -timeout=10 -rss_limit_mb=2048 \
	    corpus/$(TARGET) $(CURDIR)/fuzz/seeds/$(TARGET:fuzz_%=%)

deps: ## install compiler, make and libraries
	sh scripts/setup

install: all ## into $(DESTDIR)$(PREFIX)
	install -Dm755 $(BUILD)/trine $(DESTDIR)$(PREFIX)/bin/trine
	install -Dm644 $(BUILD)/trine.1 $(DESTDIR)$(PREFIX)/share/man/man1/trine.1
	install -Dm644 models/trine-kjv.gguf $(DESTDIR)$(PREFIX)/share/trine/trine-kjv.gguf

format: ## lay out the source by .clang-format
	clang-format -i $(filter-out %/trellis_codebook.h,$(wildcard src/*/*.[ch] src/*/*/*.[ch] bench/*.[ch] tests/*.[ch] tests/*/*.[ch] fuzz/*.[ch]))

clean: ## remove build/
	rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: .FORCE all demo bench test check fuzz-seeds check-numa check-arm check-all fuzz-one deps install format clean help
.SECONDARY:
-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TESTS:%=%.d) $(FUZZERS:%=%.d) $(TEST_LIB:.o=.d) $(CHECKS:.o=.d) $(EMULATED:.o=.d) $(BENCH:.o=.d)
