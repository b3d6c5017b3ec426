# One command per need.  Nothing is assumed but Rust, Python 3.9+, make and a
# C compiler; everything else goes to target/, .venv/ and var/.

PYTHON ?= python3
ADDRESS ?= 127.0.0.1:8100
DATA ?= var/Data.fs
# How long to soak, and the first seed; the time of day when there is none.
SOAK_MINUTES ?= 10
SOAK_SEED ?=
# End-to-end tests, and suites of the conformance tests, that run at once: most wait for servers.
JOBS ?= 4
PREFIX ?= /usr/local
INSTALLED = $(DESTDIR)$(PREFIX)/share
COMPLETIONS := bash:bash-completion/completions/zodium zsh:zsh/site-functions/_zodium \
  fish:fish/vendor_completions.d/zodium.fish
# The server under test; {path}, {port} and {options} are filled in.
ZODIUM_SERVER_COMMAND ?=
# The browser that looks at the status page, and its driver; else they are looked for.
CHROMIUM ?=
CHROMEDRIVER ?=

# What `make bench` writes, and which kinds: all of them, or BENCH_ONLY=start,idle.
RESULTS := var/bench
BENCH_ONLY ?=

VENV := .venv
BINARY := target/release/zodium
BENCHMARKS := target/release/zodium-bench
# The build that tests run: `dev` stops at an overflow or a broken assumption, and is made of what the
# Rust tests have compiled; `checked` stops there too, at the speed of a release; `release` is what
# users get.
PROFILE ?= dev
BUILT_IN = $(PROFILE:dev=debug)
# Python environments with the package installed: for `make bench`, and for `make shootout`.
CLIENTS := target/clients
SHOOTOUT_VENV := target/shootout
PLONE_VENV := target/plone
export ZODIUM_SERVER_COMMAND CHROMIUM CHROMEDRIVER
export ZODIUM_TESTED_PROFILE = $(BUILT_IN)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
RUFF_CACHE_DIR := target/ruff
export RUFF_CACHE_DIR
SAY := @printf '\n== %s\n'

.PHONY: help serve build programs install uninstall package packagetest wheel test tools format tidy prose python lint doc unit mariadb browser e2e conformance fuzz sessions histories simulate deny coverage loom miri tsan shared-lines deep-queue bench bench-clients shootout plone-speed galera tools-speed soak mutants objectstores neo-kills queue-kills clean

help: ## Show what can be asked for
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: build ## Build, and serve DATA (var/Data.fs) on ADDRESS (127.0.0.1:8100)
	@mkdir -p $(dir $(DATA))
	$(BINARY) serve $(DATA) -a $(ADDRESS)

build: ## Build the release binary
	cargo build --release -p zodium --features object-stores

# Tests and benchmarks use both. Beside the benchmarks two crates have more features: a `make build`
# in between would build most of the server again.
# For `dev` the tests are named too: with them the crates have the features that `make unit` compiled
# them with.
programs: ## Build server and benchmarks as the tests run them: PROFILE (dev), checked or release
	cargo build --profile $(PROFILE) $(if $(filter dev,$(PROFILE)),--workspace --bins --tests,-p zodium -p zodium-bench)

soak histories bench shootout plone-speed: PROFILE = release

install: build ## Install program, manual pages, completions and systemd unit below PREFIX (/usr/local); DESTDIR= for packagers
	install -D -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/zodium
	install -d $(INSTALLED)/man/man1
	$(BINARY) man $(INSTALLED)/man/man1
	for shell in $(COMPLETIONS); do \
	  install -d "$(INSTALLED)/$$(dirname $${shell#*:})" \
	    && $(BINARY) completions $${shell%%:*} > "$(INSTALLED)/$${shell#*:}" || exit 1; \
	done
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for unit in zodium zodium-backup; do \
	  sed 's|@PREFIX@|$(PREFIX)|' packaging/$$unit.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit.service || exit 1; \
	done

uninstall: ## Remove what `make install` installed
	rm -f $(DESTDIR)$(PREFIX)/bin/zodium $(INSTALLED)/man/man1/zodium.1 $(INSTALLED)/man/man1/zodium-*.1 \
	  $(foreach shell,$(COMPLETIONS),$(INSTALLED)/$(lastword $(subst :, ,$(shell)))) \
	  $(DESTDIR)$(PREFIX)/lib/systemd/system/zodium.service \
	  $(DESTDIR)$(PREFIX)/lib/systemd/system/zodium-backup.service

# What is installed from: the program, its wheel and its sources.
PACKAGES := target/packages

package: build $(VENV)/ready ## Build the packages in target/packages: archive, Debian package, wheel, sdist, checksums
	rm -rf $(PACKAGES) && mkdir -p $(PACKAGES)
	$(VENV)/bin/maturin build --profile wheel --out $(PACKAGES)
	$(VENV)/bin/maturin sdist --out $(PACKAGES)
	$(PYTHON) packaging/sdist.py $(PACKAGES)/zodium-*.tar.gz
	$(PYTHON) packaging/package.py $(BINARY) $(PACKAGES)

packagetest: $(VENV)/ready ## Install from each package of target/packages into an empty environment, and use it
	$(VENV)/bin/python tests/packages/run.py $(PACKAGES)

wheel: $(VENV)/ready ## Build the Python package, target/wheels/zodium-*.whl, for this system and Python 3.9+
	$(VENV)/bin/maturin build --profile wheel

# Quick failures first: a second of formatting before minutes of tests.
STEPS := tools format tidy python lint doc unit programs e2e conformance

test: ## Everything that must pass before a commit; prints the time of each step
	@begun=$$(date +%s); table=; \
	for step in $(STEPS); do \
	  start=$$(date +%s); $(MAKE) $$step || { echo "make test: the step '$$step' failed"; exit 1; }; \
	  table="$$table $$step $$(($$(date +%s) - start))"; \
	done; \
	printf '\n== all tests passed\n'; \
	printf '%-12s %5d s\n' $$table all $$(($$(date +%s) - begun))

tools:
	$(SAY) 'tools'
	@command -v cargo >/dev/null || { echo 'cargo is missing: install Rust from https://rustup.rs'; exit 1; }
	@cargo fmt --version 2>/dev/null || { echo 'rustfmt is missing: rustup component add rustfmt'; exit 1; }
	@cargo clippy --version 2>/dev/null || { echo 'clippy is missing: rustup component add clippy'; exit 1; }
	@$(PYTHON) -c 'import sys; print("python", sys.version.split()[0]); sys.exit(sys.version_info < (3, 9))' \
	  || { echo 'Python 3.9 or later is needed: make PYTHON=python3.12 ...'; exit 1; }

format: ## Check the formatting (cargo fmt --all mends it)
	$(SAY) 'formatting'
	cargo fmt --all --check
	rustfmt --check --edition 2024 --config-path rustfmt.toml fuzz/fuzz_targets/*.rs

# Apart from `make test`: the clients of object stores take the compiler minutes.
objectstores: $(VENV)/ready ## Test backups in object stores, against a small store that fails
	$(SAY) 'object stores'
	cargo clippy -p zodium-backup -p zodium --features object-stores --all-targets -- -D warnings
	cargo test -q -p zodium-backup --features object-stores places
	cargo build -p zodium --features object-stores --target-dir target/object-stores
	ZODIUM_OBJECT_STORES=$(CURDIR)/target/object-stores/debug/zodium $(VENV)/bin/python -m pytest \
	  -c tests/pytest.ini tests/e2e/test_object_stores.py

tidy: ## Check the repository's own rules
	$(SAY) 'tidy'
	cargo run -q -p xtask -- tidy

prose: $(VENV)/ready ## Check the English of documents and comments, of all or of PROSE='docs crates/zeo'
	$(SAY) 'prose'
	@$(VENV)/bin/python -m pip install -q --disable-pip-version-check -r tests/prose/requirements.txt
	$(VENV)/bin/python tests/prose/run.py $(PROSE)

python: $(VENV)/ready ## Check the Python sources
	$(SAY) 'Python sources'
	$(VENV)/bin/ruff format -q --check --config tests/ruff.toml tests python \
	  || { echo 'mend it: $(VENV)/bin/ruff format --config tests/ruff.toml tests python'; exit 1; }
	$(VENV)/bin/ruff check -q --config tests/ruff.toml tests python

lint: ## Check for lints; none is let through
	$(SAY) 'lints'
	cargo clippy --workspace --all-targets -- -D warnings

doc: ## Check that every link in the documentation leads somewhere
	$(SAY) 'documentation'
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --document-private-items -q

unit: ## Run the Rust tests
	$(SAY) 'Rust tests'
	cargo test --workspace -q --no-fail-fast
	@if command -v mariadb-install-db >/dev/null; then \
	  $(MAKE) mariadb; \
	else \
	  echo 'not run: the tests on MariaDB, which is not installed (Debian: mariadb-server)'; \
	fi

# All of the workspace, so that nothing is built again.
mariadb: ## Run the Rust tests on a MariaDB server, which they start
	$(SAY) 'Rust tests on MariaDB'
	cargo test --workspace -q --no-fail-fast --test all -- --ignored maria::

# Set up anew whenever the requirements change.
$(VENV)/ready: tests/requirements.txt tests/requirements-resp.txt
	$(SAY) 'Python environment in $(VENV)'
	@$(PYTHON) -m venv --clear $(VENV) \
	  || { echo 'no venv module: install it (Debian: apt install python3-venv)'; exit 1; }
	$(VENV)/bin/python -m pip install -q --disable-pip-version-check \
	  -r tests/requirements.txt -r tests/requirements-resp.txt
	@touch $@

browser: ## Find Chromium and its driver for the status page's tests, or install them
	$(SAY) 'browser'
	@browser='$(or $(CHROMIUM),chromium)'; driver='$(or $(CHROMEDRIVER),chromedriver)'; \
	found() { command -v "$$browser" >/dev/null && command -v "$$driver" >/dev/null; }; \
	if ! found && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get install -y -q --no-install-recommends chromium chromium-driver \
	    || { apt-get update -q && apt-get install -y -q --no-install-recommends chromium chromium-driver; }; \
	fi; \
	found && "$$browser" --version || { \
	  echo 'chromium and chromedriver are missing: apt install chromium chromium-driver,'; \
	  echo 'or say where they are: make CHROMIUM=... CHROMEDRIVER=...'; exit 1; }

e2e: programs $(VENV)/ready browser ## Run the end-to-end tests against the programs of PROFILE
	$(SAY) 'end-to-end tests'
	$(VENV)/bin/python -m pytest -c tests/pytest.ini -n $(JOBS) --dist worksteal tests/e2e $(PYTEST)

conformance: programs $(VENV)/ready ## Run the storage tests of ZODB and ZEO, over Z5 and M5
	$(SAY) 'conformance'
	$(VENV)/bin/python tests/conformance/run.py --gate --jobs $(JOBS)

soak: programs $(VENV)/ready ## Simulate, then kill, exchange and freeze servers for hours; SOAK='-k ...' picks of the latter, KILLS=, COUNT_SECONDS=, ROUNDS=
	$(if $(SOAK),,@$(MAKE) simulate)
	$(SAY) 'long runs'
	ZODIUM_TEST_LARGE=1 $(VENV)/bin/python -m pytest -c tests/pytest.ini -s $(SOAK) tests/e2e/test_transfers.py \
	  tests/e2e/test_alternation.py tests/e2e/test_extremes.py

histories: programs $(VENV)/ready ## Run HISTORIES (1000) random histories of one file, Zodium and the stock server in turns, from SEED
	$(SAY) 'histories'
	PYTHONPATH=tests $(VENV)/bin/python -m harness.run_histories --count $(or $(HISTORIES),1000) $(if $(SEED),--seed $(SEED))

# The code under test forbids unsafe code: without a sanitizer it takes twice the inputs, and stable
# Rust.  SANITIZER=address needs a nightly toolchain: RUSTUP_TOOLCHAIN=nightly.
SANITIZER ?= none
FUZZER = target/libfuzzer/$$(rustc -vV | sed -n 's/^host: //p')/release/decoders
# The longest input, and the limits of one input in seconds and of the process in memory.
FUZZ_LIMITS := -max_len=65536 -timeout=20 -rss_limit_mb=4096
# What libFuzzer has found to reach further code, and inputs that fail.
FUZZED := var/fuzz

fuzz: ## Have libFuzzer feed each decoder for FUZZ_SECONDS (60), or one: FUZZ=frames; INPUT= replays a file
	@cargo fuzz --version 2>/dev/null || cargo install -q --locked cargo-fuzz
	@command -v c++ >/dev/null || { echo 'a C++ compiler is missing, for libFuzzer (Debian: apt install g++)'; exit 1; }
	cargo fuzz build -s $(SANITIZER) --target-dir target/libfuzzer
	@failed=; for name in $(or $(FUZZ),$$($(FUZZER))); do \
	  mkdir -p $(FUZZED)/$$name $(FUZZED)/failures; \
	  printf '\n== %s\n' $$name; \
	  ZODIUM_FUZZ_TARGET=$$name ZODIUM_FUZZ_CORPUS=$(if $(INPUT),,$(FUZZED)/$$name) \
	    $(FUZZER) $(FUZZ_LIMITS) -artifact_prefix=$(FUZZED)/failures/$$name- -verbosity=0 -print_final_stats=1 \
	    $(or $(INPUT),-max_total_time=$(or $(FUZZ_SECONDS),60) $(FUZZED)/$$name) || failed="$$failed $$name"; \
	done; \
	test -z "$$failed" || { echo "failed:$$failed; inputs are in $(FUZZED)/failures"; exit 1; }

sessions: ## Check ORDERS (500,000) sequences of calls and CALLS (5,000,000) of eight clients, in each encoding, against models, from SEED
	@seed='$(SEED)'; ZODIUM_SEED="$${seed:-$$(date +%s)000}" ZODIUM_TEST_ORDERS=$(or $(ORDERS),500000) \
	  ZODIUM_TEST_CALLS=$(or $(CALLS),5000000) cargo test -q -p zodium-zeo-server --test all -- --nocapture

# Downloads the advisories; DENY='bans licenses sources' does without a network.
deny: ## Check licences, advisories, versions and sources of the dependencies; DENY= picks
	@cargo deny --version 2>/dev/null || cargo install -q --locked cargo-deny
	cargo deny check --deny unmatched-skip $(DENY)

# Profiles are read by tools of rustc's own LLVM version: those that LLVM_COV and LLVM_PROFDATA name,
# those of the toolchain, or those of the system.
coverage: ## Show which lines the Rust tests reach, target/llvm-cov/html/index.html
	@cargo llvm-cov --version 2>/dev/null || cargo install -q --locked cargo-llvm-cov
	@version=$$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p'); \
	if [ -n "$$LLVM_COV" ] && [ -n "$$LLVM_PROFDATA" ]; then :; \
	elif [ -x "$$(rustc --print sysroot)/lib/rustlib/$$(rustc -vV | sed -n 's/^host: //p')/bin/llvm-cov" ]; then :; \
	elif command -v llvm-cov-$$version >/dev/null && command -v llvm-profdata-$$version >/dev/null; then \
	  export LLVM_COV=llvm-cov-$$version LLVM_PROFDATA=llvm-profdata-$$version; \
	elif llvm-cov --version 2>/dev/null | grep -q "LLVM version $$version\." && command -v llvm-profdata >/dev/null; then \
	  export LLVM_COV=llvm-cov LLVM_PROFDATA=llvm-profdata; \
	else \
	  rustup component add llvm-tools \
	    || { echo "missing: rustup component add llvm-tools, or LLVM $$version: make LLVM_COV=... LLVM_PROFDATA=..."; exit 1; }; \
	fi; \
	cargo llvm-cov --workspace --no-report -q && cargo llvm-cov report --html && cargo llvm-cov report --summary-only

loom: ## Check the index, the record cache, the metrics and the locks of readers, interleaving by interleaving; LOOM=name
	RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=target/loom \
	  cargo test -p zodium-types -p zodium-filestorage -p zodium-readlocks --lib models::$(LOOM)

miri: ## Run the tests of the one crate with unsafe code in an interpreter that checks each access (Rust nightly)
	CARGO_TARGET_DIR=target/miri cargo +nightly miri test -p zodium-readlocks

# ThreadSanitizer needs an instrumented standard library: that of a target of its own, or one built
# from its sources.
TSAN_READY := x86_64-unknown-linux-gnutsan
TSAN_TESTS := commits_on_disk invalidations pack reopening failing_disk slow_disk publication

tsan: ## Run the concurrency tests of types, filestorage, engine, net and zeo-server under ThreadSanitizer (Rust nightly)
	@sources="$$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library/std" || exit 1; \
	if rustup target list --toolchain nightly --installed | grep -qx $(TSAN_READY); then \
	  target='$(TSAN_READY)'; std=; \
	elif [ -d "$$sources" ]; then \
	  target=x86_64-unknown-linux-gnu; std=-Zbuild-std; export RUSTFLAGS="$$RUSTFLAGS -Zsanitizer=thread"; \
	else \
	  echo 'missing: rustup target add --toolchain nightly $(TSAN_READY),'; \
	  echo 'or rustup component add --toolchain nightly rust-src'; exit 1; \
	fi; \
	export CARGO_TARGET_DIR=target/tsan TSAN_OPTIONS='suppressions=$(CURDIR)/tests/tsan.txt'; \
	run() { cargo +nightly test $$std --target $$target "$$@"; }; set -x; \
	run -p zodium-types -p zodium-filestorage -p zodium-engine -p zodium-net -p zodium-zeo-server --lib \
	  && run -p zodium-filestorage -p zodium-engine --test all -- $(TSAN_TESTS)

# Needs qemu-user, and a program with line tables: the release has them.
shared-lines: build $(VENV)/ready ## Count cache lines that move between threads, instructions and system calls, for loads and commits; SHARED='--workers 4'
	@command -v qemu-x86_64 >/dev/null && command -v addr2line >/dev/null \
	  || { echo 'qemu-x86_64 and addr2line are missing (Debian: apt install qemu-user binutils)'; exit 1; }
	$(VENV)/bin/python tests/shared_lines/run.py $(BINARY) $(or $(SHARED),--workers 1,4,16,64 --clients 16,64)

deep-queue: build $(VENV)/ready ## Measure many loads in flight by a client without code of the project; DEEP='--depths 64'
	$(VENV)/bin/python tests/deep_queue/run.py $(BINARY) $(DEEP)

mutants: ## Apply known mistakes one by one: tests must notice; ONLY=name, SHARD=k/n, SAMPLE=n random ones, or ALL=engine all of a crate, SLOW=1
ifneq ($(SAMPLE)$(ALL),)
	@cargo mutants --version 2>/dev/null || cargo install -q --locked cargo-mutants
endif
	cargo run -q -p xtask -- mutants $(if $(ONLY),--only '$(ONLY)') $(if $(SHARD),--shard $(SHARD)) \
	  $(if $(SAMPLE),--sample $(SAMPLE) $(if $(SEED),--seed $(SEED))) \
	  $(if $(ALL),--all $(ALL) $(if $(SLOW),--slow) $(if $(filter-out file,$(origin JOBS)),--jobs $(JOBS))) $(MUTANTS)

simulate: ## Run simulated servers of ZEO and RESP, and NEO clusters, with ever new seeds for SOAK_MINUTES (10) each from SOAK_SEED
	$(SAY) 'simulation'
	@seed='$(SOAK_SEED)'; seed="$${seed:-$$(date +%s)000}"; failed=0; \
	ZODIUM_SEED="$$seed" cargo test --release -q -p zodium-engine --test all commit_model:: -- --nocapture \
	  || failed=1; \
	for simulated in zeo neo neo-masters resp; do \
	  cargo run --release -q -p zodium-simulation -- --of $$simulated --seed "$$seed" \
	    --minutes $(SOAK_MINUTES) || failed=1; \
	done; \
	exit $$failed

# Each kind with what it is called with; a file of results for each. All together: 45 minutes.
BESIDE := --zeo-python $(VENV)/bin/python
WIRES := --wires M5,Z5
KEPT := --datasets $(RESULTS)/datasets
# The system's temporary folder may be in memory.
ON_DISK := --folder $(RESULTS)/disk
SITE := --dataset prod1
SMALL := --object-bytes 400 --objects 10000 --cells 1x64,16x64 --zodium-option=--workers=1
UNCACHED = --peer 'uncached=$(CURDIR)/$(BINARY) serve {path} -a 127.0.0.1:{port} --msgpack \
  --cache-size 0 --log-level warn'

KINDS = system syscalls messenger load load-polled load-site load-small load-cold read-all read-all-site \
  commit conflict client client-site client-iterate pack start start-large idle keyspace \
  $(if $(VALKEY),resp)
of-system := system $(ON_DISK)
of-syscalls := syscalls $(ON_DISK)
of-messenger := messenger --rounds 3 --seconds 0.3 --warm-up 0.1
of-load := load $(BESIDE) $(WIRES) $(KEPT) --rounds 5 --seconds 1
of-load-site := load $(BESIDE) $(KEPT) $(SITE) --rounds 3 --seconds 1 --cells 1x1,16x1,1x64
of-load-small := load $(BESIDE) $(KEPT) $(SMALL) --rounds 5 --seconds 1
of-load-polled := load $(KEPT) --rounds 3 --seconds 1 --cells 1x1,16x1 --busy-poll 50
of-load-cold := cold $(BESIDE) $(KEPT) $(ON_DISK) --rounds 3 --seconds 1
of-read-all := read-all $(BESIDE) $(WIRES) $(KEPT) --rounds 3 --seconds 0.5
of-read-all-site := read-all $(BESIDE) $(KEPT) $(SITE) --rounds 3 --seconds 0.5
of-commit := commit $(BESIDE) $(ON_DISK) $(WIRES) --rounds 3 --delays-ms 0,10 --clients 1,16,64
of-conflict := commit $(BESIDE) $(ON_DISK) $(WIRES) --rounds 3 --modes conflict --clients 1,64
# In memory: what is left is client and server.
CLIENT = client --python $(CLIENTS)/bin/python $(BESIDE) --folder /dev/shm $(KEPT) --rounds 5
of-client = $(CLIENT) --cases load,threads,bulk,commit --seconds 1
of-client-site = $(CLIENT) $(SITE) --cases load,threads --seconds 1
of-client-iterate = $(CLIENT) --objects 100k --object-bytes 400 --cases iterate --patience 5
of-pack := pack $(BESIDE) $(ON_DISK) --rounds 3 --seconds 2
of-start = start $(BESIDE) $(KEPT) $(UNCACHED) --rounds 3
of-start-large := start $(KEPT) --objects 10M --source memory,disk --rounds 3
of-idle := idle $(BESIDE) --rounds 1
of-keyspace := rcu --rounds 3 --seconds 0.2
of-resp = resp --valkey $(VALKEY) --rounds 3

empty :=
define newline

$(empty)
endef
comma := ,
CHOSEN = $(or $(subst $(comma), ,$(BENCH_ONLY)),$(KINDS))
run-kind = $(BENCHMARKS) $(or $(of-$(1)),$(error no kind of benchmark is called $(1))) --format table \
  --json $(RESULTS)/$(1).json$(newline)

# An environment with the package as it is now, and with what else is asked for.
define install-package
	@rm -f target/wheels/zodium-*.whl
	@$(MAKE) wheel
	@test -d $(1) || $(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install -q --disable-pip-version-check $(2)
	$(1)/bin/python -m pip install -q --disable-pip-version-check --force-reinstall --no-deps \
	  target/wheels/zodium-*.whl
endef

# Only clients need the package: to build it takes minutes.
bench-clients: $(VENV)/ready
	$(if $(BENCH),,$(if $(filter client%,$(CHOSEN)),$(call \
	  install-package,$(CLIENTS),-c tests/requirements.txt ZEO msgpack zc.lockfile)))

bench: programs bench-clients $(VENV)/ready ## Measure all kinds beside ZEO/py and the floor; BENCH_ONLY=start,idle those, BENCH='...' loads with options
ifdef BENCH
	$(BENCHMARKS) load --format table $(BESIDE) $(BENCH)
else
	@mkdir -p $(RESULTS)
	$(foreach kind,$(CHOSEN),$(call run-kind,$(kind)))
	@files=; for kind in $(KINDS); do \
	  if [ -f $(RESULTS)/$$kind.json ]; then files="$$files $(RESULTS)/$$kind.json"; fi; done; \
	$(BENCHMARKS) report $$files -o $(RESULTS)/report.html && \
	$(BENCHMARKS) report $$files -o $(RESULTS)/report.md
endif

neo-kills: programs $(VENV)/ready ## Kill primary masters of NEO under commits, 100 times; NEO_KILLS='--kills 10' for fewer
	$(VENV)/bin/python tests/neo_kills/run.py $(NEO_KILLS)

queue-kills: programs $(VENV)/ready ## Kill clients, then servers, that commit tasks with transactions, 200 times each; QUEUE_KILLS=10 for fewer
	ZODIUM_TEST_QUEUE_KILLS=$(or $(QUEUE_KILLS),200) $(VENV)/bin/python -m pytest -c tests/pytest.ini -s -k 'killed or kill_of_the_server' tests/e2e/test_resp_transactions.py

galera: programs $(VENV)/ready ## Kill Galera nodes under commits, 100 times; GALERA='--kills 10' for fewer
	$(VENV)/bin/python tests/galera/run.py $(GALERA)

tools-speed: build $(VENV)/ready ## Measure the tools beside the stock ones on a file of 450 MB; SPEED='--mb 100', ZODBTOOLS=PYTHON
	$(VENV)/bin/python tests/tools_speed/run.py $(BINARY) $(SPEED)

plone-speed: programs ## Time a Plone site with cold caches beside ZEO; PLONE='--rounds 9 --processes 3' with options
	$(call install-package,$(PLONE_VENV),-r tests/plone_speed/requirements.txt)
	$(PLONE_VENV)/bin/python tests/plone_speed/run.py $(BINARY) $(dir $(BINARY))zodium-bench $(PLONE)

shootout: programs $(VENV)/ready ## Run zodbshootout over Zodium, ZEO and RelStorage; SHOOTOUT='-c 2 cold add' with options
	$(call install-package,$(SHOOTOUT_VENV),-r tests/shootout/requirements.txt)
	$(SHOOTOUT_VENV)/bin/python tests/shootout/run.py $(BINARY) $(SHOOTOUT)

clean: ## Remove what was built; var/ stays
	cargo clean
	rm -rf $(VENV)
