# Everything a contributor runs. `make help` lists it. Works with GNU make 3.81 (the one macOS ships).

PY := .venv/bin/python
WORKERS ?= 2
export PYTHON

.DEFAULT_GOAL := setup
.PHONY: help setup demo test lint nightly bench e2e agents record-e2e lock clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1	/p' Makefile | expand -t 14

setup: .venv/.dev ## create or update .venv (every target does so when needed)

.venv/.run: requirements.txt pyproject.toml scripts/setup-venv
	@scripts/setup-venv requirements.txt
	@touch $@

.venv/.dev: requirements-dev.txt pyproject.toml scripts/setup-venv
	@scripts/setup-venv requirements-dev.txt
	@touch .venv/.run $@

.venv/.record: requirements-record.txt .venv/.run
	@scripts/setup-venv requirements-record.txt --no-deps
	@touch $@

demo: .venv/.run ## replay the example suite: no key, no network
	@$(PY) -m onetake replay examples/acp-agent/tests/snapshots

lint: .venv/.dev ## style, types and import contracts
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports

test: lint ## everything that must be green before a commit
	$(PY) -m coverage erase
	$(PY) -m coverage run -m pytest -n $(WORKERS) --dist worksteal
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report

nightly: .venv/.dev ## the tests with many repeats and 100 times deeper property tests
	ONETAKE_NIGHTLY=1 $(PY) -m pytest -n $(WORKERS) --dist worksteal

bench: .venv/.dev ## start-up, scenario, suite, codec, gateway and memory figures
	$(PY) -m benchmarks

e2e: .venv/.dev ## the agent against a real endpoint; needs a key (see tests/e2e)
	ONETAKE_E2E=1 $(PY) -m pytest tests/e2e -m e2e -ra

agents: .venv/.dev ## the gateway against agents that are not ours; installs them where npm is there
	@scripts/setup-agents
	ONETAKE_AGENTS=1 $(PY) -m pytest tests/agents -m agents -ra -q

record-e2e: .venv/.record ## record from a real local model, twice, and replay both (see examples/local-model)
	$(PY) examples/local-model/record_twice.py

lock: ## pin the requirement files anew (UPGRADE=1 takes the newest versions)
	scripts/lock $(if $(UPGRADE),--upgrade)

clean: ## remove what builds and tests leave behind, .venv included
	rm -rf .venv build dist htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf .import_linter_cache .onetake
	find src tests examples scripts -name __pycache__ -type d -prune -exec rm -rf {} +
