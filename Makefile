# The only entry point for people and CI. `make help` lists the targets.
SHELL := bash
BIN := .venv/bin
.DEFAULT_GOAL := help
# Tests with real programs beside the product; those of ALONE look at times, so they run one after the other.
REAL := tests/controlplane tests/node
ALONE := tests/prometheus tests/browser
.PHONY: help setup run test test-fast cluster bench fmt lint types imports check lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.venv/ready: requirements.lock pyproject.toml scripts/setup hatch_build.py scoring/native.c extender/names.c
	@scripts/setup

setup: .venv/ready ## install everything into .venv (done by every other target)

run: .venv/ready ## the main job on a simulated cluster, no GPU needed; FOR=20 stops after 20 s and prints a summary
	@$(BIN)/python -m extender.simulation.run $(if $(FOR),--for $(FOR)) $(if $(PORT),--port $(PORT)) $(if $(SEED),--seed $(SEED))

test: .venv/ready ## every test that this machine can run
	@$(BIN)/pytest -n auto --dist loadfile --reruns 1 $(addprefix --ignore=,$(REAL) $(ALONE)) $(ARGS)
	@$(BIN)/pytest -n 3 --dist loadfile --reruns 2 $(REAL) $(ARGS)
	@$(BIN)/pytest --reruns 2 $(ALONE) $(ARGS)

test-fast: .venv/ready ## without the real control plane
	@$(BIN)/pytest -n auto --dist loadfile -m "not slow" $(addprefix --ignore=,$(REAL) $(ALONE)) $(ARGS)

cluster: .venv/ready ## a real kube-apiserver and kube-scheduler with simulated GPU nodes, until Ctrl-C (needs Go)
	@$(BIN)/python -m tests.controlplane.cluster $(if $(NODES),--nodes $(NODES))

bench: .venv/ready ## NAME=latency: print a table, write benchmarks/results/NAME.json
	@$(BIN)/python -m benchmarks.$(or $(NAME),latency) $(ARGS)

.PHONY: quality-guard
quality-guard: .venv/ready ## placement on two workloads of the public trace; fails where it got worse (minutes)
	@$(BIN)/python -m benchmarks.quality.guard

.PHONY: bench-ci
bench-ci: .venv/ready ## a small size of the benchmarks; fails on ratios that a regression breaks (needs Go; minutes)
	@$(BIN)/python -m benchmarks.latency --nodes 500 2000 --pairs 200 --most-ratio 15 --most-growth 5
	@$(BIN)/python -m benchmarks.throughput --nodes 6 --most-ratio 4
	@$(BIN)/python -m benchmarks.idle --nodes 500 --seconds 5 --most-ratio 9
	@$(BIN)/python -m benchmarks.sync --nodes 500 --pods 5000 --decisions 100 --most-ratio 6

fmt: .venv/ready ## format the code
	@$(BIN)/ruff format .

lint: .venv/ready ## format and style as CI wants them
	@$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: .venv/ready ## mypy, strict
	@$(BIN)/mypy

imports: .venv/ready ## who may import whom (.importlinter)
	@$(BIN)/lint-imports --no-logo

check: lint types imports chart test ## everything that a commit must pass

lock: .venv/ready ## resolve the dependencies anew
	@$(BIN)/uv pip compile -q pyproject.toml --all-extras --group dev --universal --generate-hashes --no-header -o requirements.lock

clean: ## remove what the targets made
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage benchmarks/results

.PHONY: chart
chart: .venv/ready ## lint the chart, render every mode, validate each object (needs Go); ARGS=--write renders install.yaml
	@$(BIN)/python -m tests.manifests.check_chart $(ARGS)

.PHONY: test-node
test-node: .venv/ready ## the chart on a real kubelet and container runtime (root, Debian's packages, Go); WRITE_DOCS=1 writes its tables
	@$(if $(WRITE_DOCS),WRITE_DOCS=1 )$(if $(PODS),PODS=$(PODS) )$(BIN)/pytest tests/node $(ARGS)

KUBERNETES := 1.34.4 1.35.4 1.36.3 1.37.2
.PHONY: test-matrix
test-matrix: .venv/ready ## the main job on each supported Kubernetes (needs Go, minutes each); KUBERNETES=1.35.4 takes one
	@for version in $(KUBERNETES); do \
	    echo "== Kubernetes $$version"; \
	    KUBERNETES_VERSION=$$version $(BIN)/pytest tests/controlplane/test_matrix.py $(ARGS) || exit 1; \
	done
