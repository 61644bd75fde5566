# Everything a person or a machine does with this project. `make help` lists it.

SHELL := /bin/bash

FUZZ_SECONDS  ?= 10
DEMO_IMAGE    ?=

.DEFAULT_GOAL := help
.PHONY: help demo test test-python lint static fuzz bench

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## install what is missing, build, and run the whole main job on this machine
	@scripts/install-deps --build --demo
	@scripts/build-static
	@target/static/cheetah demo $(DEMO_IMAGE)

test: ## install what testing needs; run every test, against the real peers, and fuzz for a moment
	@scripts/install-deps --build --demo --test
	@scripts/build-static
	CHEETAH_STATIC=$(CURDIR)/target/static/cheetah cargo test --workspace --no-fail-fast -- --show-output
	@$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target test-python fuzz

test-python: # what of the tests is in Python
	@scripts/python-env
	CHEETAH_STATIC=$(CURDIR)/target/static/cheetah target/venv/bin/python -m pytest -c python/pyproject.toml python/tests lab/tests bench/tests

lint: ## format, clippy with warnings denied, licences and origins of dependencies; ruff and mypy
	@scripts/install-deps --build --python
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	@scripts/install-cargo-tool cargo-deny
	cargo deny --log-level error check licenses bans sources
	@scripts/python-env --tools
	target/venv/bin/ruff check --quiet
	cd python && ../target/venv/bin/mypy cheetah

static: ## one static binary for any Linux: target/static/cheetah
	@scripts/install-deps --build
	@scripts/build-static

fuzz: ## fuzz each target for FUZZ_SECONDS (10)
	@scripts/install-deps --build
	@scripts/install-cargo-tool cargo-fuzz
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

bench: ## measure against the peers, and write bench/RESULTS.md
	@scripts/install-deps --build --demo --test --bench
	@scripts/build-static
	@scripts/python-env --release
	@bench/run
