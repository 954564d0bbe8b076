# hsmux: what people run. Each target says what it does; `make help` lists them.

PREFIX  ?= /usr/local
DESTDIR ?=
LIBDIR  ?= $(PREFIX)/lib
UNITDIR ?= $(PREFIX)/lib/systemd/system
# LAB=no leaves hsmux-lab out, which production hosts need not have.
LAB     ?= yes

production = -p hsmux-cli -p hsmux-pkcs11
programs = $(production) -p hsmux-lab

.PHONY: help build test demo bench attacks cluster fuzz interleavings simulate judges tsan docs advisories sbom reproduce install uninstall clean lint

help: ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

build: ## The programs and the module, optimised, in target/release (installs what a build needs; LAB=no: no hsmux-lab)
	scripts/deps.sh build
	cargo build --release --locked $(if $(filter no,$(LAB)),$(production),$(programs))

test: ## Everything that has to hold: format, lints, borders, licences, all tests (installs what they need)
	scripts/deps.sh test
	scripts/test.sh

lint: ## Format and lints alone
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

demo: ## 1 to 8 virtual cards measured, one pulled out under load, then SoftHSM and OpenSSL (KEEP=1 leaves the cards up)
	scripts/deps.sh demo
	cargo build --release --locked $(programs)
	KEEP=$(KEEP) scripts/demo.sh

bench: ## The figures of docs/performance.md, side by side in one run (QUICK=1 for a shorter one)
	scripts/deps.sh bench
	cargo build --release --locked $(programs) -p hsmux-standin -p hsmux-suite
	QUICK=$(QUICK) scripts/bench.sh

ATTACKS ?=
attacks: ## Attacks over loopback, and what an honest user notices (QUICK=1 for a few, ATTACKS="hosts memory" for some)
	scripts/deps.sh attacks
	cargo build --release --locked $(programs) -p hsmux-standin
	$(as_root) tests/attacks/run $(if $(QUICK),--quick) --bin $(or $(CARGO_TARGET_DIR),target)/release $(ATTACKS)

as_root = $(if $(filter-out 0,$(shell id -u)),sudo)
choices = TOKENS WORDPRESS FULL RESTART KEYS HSMS TIME KEEP REPORTS TMPDIR CARGO_TARGET_DIR
cluster: ## A web cluster of three hosts on this machine, and a table of measurements (FAULTS=1, WORDPRESS=1, FULL=1, KEEP=1)
	scripts/deps.sh $(if $(WORDPRESS),wordpress,cluster)
	cargo build --release --locked $(programs)
	$(as_root) env $(foreach choice,$(choices),$(choice)='$($(choice))') scripts/cluster.sh $(if $(FAULTS),faults)

simulate: ## The pool in a simulation (STEPS=100000000 SEED=1 TRACE=1); CRATE=replicate: changes, CRATE=audit: the trail
	STEPS=$(or $(STEPS),10000000) SEED=$(or $(SEED),1) cargo test --release --locked -p hsmux-$(or $(CRATE),pool) --lib -- \
		--nocapture simulation::the_invariants_hold_while_tokens_fail simulation::a_change_reaches_enough_members_or_none \
		simulation::nothing_is_answered_before_its_line_is_on_the_trail

interleavings: ## Code that threads share, in many orders of its threads (shuttle)
	scripts/interleavings.sh

fuzz: ## Fuzz targets with the address sanitizer, by a nightly toolchain (TIME=seconds or RUNS=n for each, TARGET=name)
	scripts/deps.sh fuzz
	TIME='$(TIME)' RUNS='$(RUNS)' TARGET='$(TARGET)' CORPUS='$(CORPUS)' scripts/fuzz.sh

SUITES ?=
judges: ## Other projects' PKCS#11 tests on a bare token and on pools, compared (SUITES="crypto11 p11test" for some)
	scripts/deps.sh judges
	cargo build --release --locked $(programs)
	scripts/judges.sh $(SUITES)

tsan: ## The tests of wire and pool with the thread sanitizer, by a nightly toolchain with rust-src
	scripts/tsan.sh

docs: ## The book, from docs/SUMMARY.md, in target/book
	scripts/deps.sh docs
	target/tools/bin/mdbook build

advisories: ## Known vulnerabilities of the dependencies, where RustSec's database can be reached
	scripts/advisories.sh

sbom: ## A bill of materials (CycloneDX) of what ships, in target/sbom.json
	@mkdir -p target
	scripts/sbom.py target/sbom.json

reproduce: ## Two release builds in two folders, compared byte for byte
	scripts/reproduce.sh

install: ## What `make build` has built, man pages, completions and systemd unit, under DESTDIR and PREFIX (LAB=no)
	DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' UNITDIR='$(UNITDIR)' LAB='$(LAB)' scripts/install.sh

uninstall: ## What `make install` has installed
	DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' UNITDIR='$(UNITDIR)' scripts/install.sh --remove

clean: ## What was built
	cargo clean
