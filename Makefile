# Everything a person or a machine does with this project. `make help` lists the targets.

SHELL := /bin/bash

FUZZ_SECONDS ?= 10
DEMO_IMAGE   ?=

.DEFAULT_GOAL := help
.PHONY: help demo test test-rust test-python lint lint-rust lint-python static fuzz attack bench

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## install missing packages, build, and run the whole main job on this machine
	@scripts/install-deps --build --demo
	@scripts/build-static
	@target/static/cheetah demo $(DEMO_IMAGE)

test: test-rust test-python ## install missing packages, and run every test against the real peers

test-rust: ## run the tests of the Rust crates and of the command line
	@scripts/install-deps --build --demo --test
	@scripts/build-static
	CHEETAH_STATIC=$(CURDIR)/target/static/cheetah cargo test --workspace --no-fail-fast -- --show-output

test-python: ## run the tests of the Python package, the lab and the benchmarks
	@scripts/install-deps --build --demo --test
	@scripts/build-static
	@scripts/python-env
	CHEETAH_STATIC=$(CURDIR)/target/static/cheetah target/venv/bin/python -m pytest -c python/pyproject.toml python/tests lab/tests bench/tests

lint: lint-rust lint-python ## check format, lints, types, and the licences and origins of dependencies

lint-rust:
	@scripts/install-deps --build --python
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	@scripts/install-cargo-tool cargo-deny
	cargo deny --log-level error check licenses bans sources

lint-python:
	@scripts/install-deps --build --python
	@scripts/python-env --tools
	target/venv/bin/ruff check --quiet
	target/venv/bin/mypy --config-file python/pyproject.toml --exclude /tests/ python/cheetah lab bench attack

static: ## build one static binary for any Linux: target/static/cheetah
	@scripts/install-deps --build
	@scripts/build-static

fuzz: ## fuzz each target for FUZZ_SECONDS (10)
	@scripts/install-deps --build
	@scripts/install-cargo-tool cargo-fuzz
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

attack: ## attack every server on loopback, for some minutes (ATTACK=quick: about two)
	@scripts/install-deps --build --python
	@scripts/build-static
	@scripts/python-env
	@python3 -m attack

bench: ## measure against the peers, and write bench/RESULTS.md
	@scripts/install-deps --build --demo --test --bench
	@scripts/build-static
	@scripts/python-env --release
	@bench/run
