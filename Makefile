# `make` without a target lists the targets. Each target installs what it needs. Most targets need
# only Python 3.11 or newer, make, and access to the package registries.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
SHELL := /bin/bash
# Arguments for the command of a target. Example: make test ARGS="tests/unit/tools -x"
ARGS ?=
# Processes that run tests. Many tests wait, so 4 processes are useful even on 2 cores. The tests of a
# file run in one process, so that module fixtures start once. tests/conftest.py sorts the files.
WORKERS ?= 4
# The virtual environments that `make test-handoff` creates and tests. See tools/setup-handoff.sh.
HANDOFF ?= loaders trackers trainers slime_areal prime_tinker_art
# The bridges that `make test-bridges` tests. See tools/setup-bridges.sh.
BRIDGES ?= $(basename $(notdir $(filter-out %.lock.txt,$(wildcard tools/bridges/*.txt))))
# The device on which `make test-vllm` runs vLLM: cpu or gpu.
DEVICE ?= cpu
# An older version of vLLM for `make test-vllm`: 0.24 or 0.25. See tools/setup-vllm.sh.
VLLM ?=

.DEFAULT_GOAL := help
.PHONY: audit help setup demo docs test test-all test-bridges test-clients test-consul test-keepalive test-deploy test-handoff test-hosts test-images test-kubernetes test-observe test-programs test-sandboxes test-slurm test-view test-vllm view view-pictures check format proto wheel test-wheel lock release-image sbom bench bench-clients bench-codec bench-export bench-gateway bench-instructions bench-journal bench-model bench-peers bench-profile bench-resource bench-routing bench-rows bench-sandboxes bench-scale bench-scaling bench-side-data bench-tokens bench-trainer bench-transport bench-view bench-xds chaos chaos-damage chaos-programs chaos-sandboxes clean compare-gateways fuzz scaling capture-law chaos-ranks

help: ## list the targets
	@echo "Usage: make TARGET [ARGS=\"OPTIONS\"]. Example: make bench ARGS=-h lists the options of bench"
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## create .venv from the locked requirements, unless it is up to date
	@PYTHON="$(PYTHON)" tools/setup.sh

demo: setup ## collect scored rollouts from a small language model on this machine
	@tools/demo.sh

docs: ## build the documentation as a site in dist/docs, and check its links
	@PYTHON="$(PYTHON)" tools/docs.sh

test: setup ## run the tests (ARGS="…" are options for pytest)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

audit: setup ## attack the verifiers of all environments of gymmesh (takes minutes)
	GYMMESH_TEST_AUDIT=1 $(BIN)/python -m pytest -n $(WORKERS) tests/audit $(ARGS)

test-all: setup ## run make check and all test targets, and print a table of the results
	@tools/test-all.sh $(ARGS)

test-bridges: setup ## test the bridges to other projects (BRIDGES="harbor ors": only these)
	@tools/setup-bridges.sh $(BRIDGES) >/dev/null
	@set -e; for name in $(BRIDGES); do \
		python=$$(tools/setup-bridges.sh $$name); \
		GYMMESH_TEST_BRIDGE=$$name GYMMESH_BRIDGE_PYTHON=$$python $(BIN)/python -m pytest tests/bridges/$$name $(ARGS); \
	done

test-clients: setup ## build and test the clients in other languages (LANGUAGES="go rust")
	@tools/test-clients.sh $(LANGUAGES)

test-consul: setup ## build a Consul agent, and run the tests that need Consul
	@tools/test-clients.sh --build $(or $(LANGUAGES),go typescript rust)
	GYMMESH_TEST_CONSUL="$$(tools/setup-consul.sh)" \
		GYMMESH_TEST_CLIENTS="$(or $(LANGUAGES),go typescript rust)" \
		$(BIN)/python -m pytest tests/consul $(ARGS)

test-keepalive: setup ## test idle connections to grpc-go and grpc-java (takes minutes)
	@tools/test-clients.sh --build go java
	GYMMESH_TEST_SLOW=1 GYMMESH_TEST_CLIENTS="go java" $(BIN)/python -m pytest -s tests/clients/test_keepalive.py $(ARGS)

test-handoff: setup ## test exports and trackers with the code of other projects (HANDOFF="loaders")
	@set -e; for name in $(HANDOFF); do \
		env=$$(tools/setup-handoff.sh $$name); \
		GYMMESH_TEST_HANDOFF=$$name $$env/bin/python -m pytest -p no:cacheprovider tests/handoff/$$name $(ARGS); \
	done

test-hosts: setup ## test a mesh while its hosts can't reach each other (needs root)
	GYMMESH_TEST_HOSTS="$$(tools/setup-consul.sh)" $(BIN)/python -m pytest tests/hosts $(ARGS)

test-kubernetes: setup ## build a Kubernetes API server, and run the tests that need Kubernetes
	GYMMESH_TEST_KUBERNETES="$$(tools/setup-kubernetes.sh)" GYMMESH_TEST_HELM="$$(tools/setup-helm.sh)" \
		$(BIN)/python -m pytest tests/kubernetes $(ARGS)

test-deploy: setup ## lint, render and check the Helm chart and the images in deploy/
	GYMMESH_TEST_HELM="$$(tools/setup-helm.sh)" $(BIN)/python -m pytest tests/deploy $(ARGS)

test-images: setup ## build the container images without Docker, and test them (needs root)
	@tools/test-images.sh

test-observe: setup ## build Prometheus, and test metrics, alerts and dashboards
	GYMMESH_TEST_PROMETHEUS="$$(tools/setup-prometheus.sh)" $(BIN)/python -m pytest tests/observe $(ARGS)

test-programs: setup ## test published coding agents with a scripted model (needs npm)
	@tools/test-programs.sh $(ARGS)

test-sandboxes: setup ## test sandboxes with bubblewrap, Docker and Podman (needs root)
	@tools/test-sandboxes.sh $(ARGS)

test-slurm: setup ## install Slurm, and test a mesh in a Slurm job (needs root)
	@tools/setup-debian.sh slurmctld slurmd slurm-client munge
	GYMMESH_TEST_SLURM=1 $(BIN)/python -m pytest tests/slurm $(ARGS)

test-view: setup ## test gym-cli view and the documentation in a browser (needs npm)
	@tools/test-view.sh $(ARGS)

test-vllm: setup ## run the tests that need vLLM (DEVICE=gpu, VLLM=0.24)
	@DEVICE=$(DEVICE) VLLM=$(VLLM) tools/setup-vllm.sh >/dev/null
	GYMMESH_TEST_VLLM=$(DEVICE) $${VLLM_ENV:-.cache/vllm/env$(addprefix -,$(VLLM))}/bin/python -m pytest \
		$(if $(VLLM),tests/vllm/test_token_ids.py tests/vllm/test_nemo_rl.py,tests/vllm) $(ARGS)

check: setup ## run all checks of CI except the tests: format, lint, types, contract
	@tools/check.sh

format: setup ## format the code, and fix lint errors that the linter can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: setup ## regenerate all files generated from proto/gymmesh (LANGUAGES="go rust")
	$(BIN)/python tools/generate.py
	$(BIN)/python -m tools.rows
	@tools/test-clients.sh --generate $(or $(LANGUAGES),go typescript rust)

view: ## build the web page of gym-cli view (needs npm)
	@tools/setup-view-page.sh
	npm --prefix clients/view/ui run --silent build

view-pictures: setup ## draw the pictures of docs/how-to/view.md again (needs Chromium)
	@tools/test-view.sh --pictures

wheel: ## build the wheel into dist/ (needs only Python with pip)
	@PYTHON="$(PYTHON)" tools/wheel.sh

test-wheel: ## build the wheel, install it in a new environment, and run gym-cli
	@PYTHON="$(PYTHON)" tools/test-wheel.sh

lock: setup ## update requirements/*.txt from pyproject.toml (ARGS=--upgrade: to the newest)
	tools/lock.sh $(ARGS)

release-image: setup ## save the contract as the base of later checks with buf breaking
	$(BIN)/python tools/buf_check.py release-image

sbom: setup ## write the list of the images' packages (SBOM) to dist/sbom.cdx.json
	@tools/sbom.sh

bench: setup ## measure the CPU cost of a rollout in gymmesh and in other frameworks
	$(BIN)/python tests/scale/bench_rollout.py $(ARGS)

bench-clients: setup ## compare the CPU cost of the collectors in all languages
	@tools/build-collectors.sh
	$(BIN)/python tests/scale/bench_clients.py $(ARGS)

bench-codec: setup ## compare the codec's speed with orjson
	$(BIN)/python tests/scale/bench_codec.py

bench-export: setup ## compare exports with hand-written loops (ARGS="--rows N")
	$(BIN)/python tests/scale/bench_export.py $(ARGS)

bench-gateway: setup ## measure the cost of model calls through the gateway (ARGS=--quick)
	$(BIN)/python tests/scale/bench_gateway.py $(ARGS)

bench-instructions: setup ## count the machine instructions of a rollout, with valgrind
	$(BIN)/python tests/scale/bench_instructions.py $(ARGS)

bench-journal: setup ## measure the cost of the journal, and a run of a million rollouts
	$(BIN)/python tests/scale/bench_journal.py $(ARGS)

bench-model: setup ## compare the CPU cost of a model call with bare aiohttp and openai
	$(BIN)/python tests/scale/bench_model.py $(ARGS)

bench-peers: ## install the frameworks that make bench compares with
	tools/setup-bench-peers.sh

bench-profile: setup ## measure the memory of gym-cli profile with a million rows
	$(BIN)/python tests/scale/bench_profile.py $(ARGS)

bench-resource: setup ## measure tool calls, verdicts, sessions and the Python sandbox
	$(BIN)/python tests/scale/bench_resource.py

bench-routing: setup ## simulate rules that choose a model endpoint for each rollout
	$(BIN)/python tests/scale/bench_routing.py $(ARGS)

bench-rows: setup ## measure how long rows of 2 to 512 model calls take to write and read
	$(BIN)/python tests/scale/bench_rows.py $(ARGS)

bench-sandboxes: setup ## compare sandboxes with subprocesses and with other frameworks
	$(BIN)/python tests/scale/bench_sandboxes.py $(ARGS)

bench-scale: setup ## measure 10,000 rollouts at a time, and a run of 100,000 rollouts
	$(BIN)/python tests/scale/bench_scale.py $(ARGS)

bench-scaling: setup ## measure the inputs of the capacity model (see make scaling)
	$(BIN)/python -m tests.scale.bench_scaling $(ARGS)

bench-side-data: setup ## measure a mesh that carries 26 GB of side data (ARGS=--quick)
	$(BIN)/python tests/scale/bench_side_data.py $(ARGS)

bench-tokens: setup ## compare tokens/s with vLLM's benchmark (URL=http://…/v1 MODEL=…)
	$(BIN)/python tests/scale/bench_tokens.py --url "$(URL)" --model "$(MODEL)" $(ARGS)

bench-trainer: setup ## compare TrainerCollector with TRL's loop and verifiers (ARGS=--quick)
	$(BIN)/python tests/scale/bench_trainer.py $(ARGS)

bench-transport: setup ## compare the CPU cost of plain RPCs and of calls over the mux
	$(BIN)/python tests/scale/bench_transport.py $(ARGS)

bench-view: setup ## measure the index and the requests of gym-cli view (ARGS="--rows N")
	$(BIN)/python tests/scale/bench_view.py $(ARGS)

bench-xds: setup ## measure how fast gRPC clients learn of changes over xDS
	$(BIN)/python -m tests.scale.bench_xds $(ARGS)

scaling: setup ## print the capacity model of docs/ideas/scaling.md (ARGS=--write: update it)
	$(BIN)/python -m tests.scale.scaling_sim $(ARGS)

chaos: setup ## break 20 runs of 500 rollouts on purpose, and check their files
	$(BIN)/python -m tests.chaos $(ARGS)

chaos-damage: setup ## damage 250 files of finished runs, and check what readers report
	$(BIN)/python -m tests.chaos.damage $(ARGS)

chaos-programs: setup ## kill agent programs and their services in 400 rollouts (needs root)
	$(BIN)/python -m tests.chaos.programs $(ARGS)

chaos-ranks: setup ## kill ranks that share a run, or the collector, and check all groups
	$(BIN)/python -m tests.ranks $(ARGS)

chaos-sandboxes: setup ## kill services, clients and daemons of 2,000 sandboxes (needs root)
	@tools/test-sandboxes.sh --chaos $(ARGS)

fuzz: setup ## send malformed messages to every RPC and port, 10 minutes for each target
	$(BIN)/python -m tests.fuzz $(ARGS)

compare-gateways: setup ## run the gateway tests with our gateway and with other gateways
	@tools/compare-gateways.sh $(ARGS)

capture-law: setup ## check the tree of captured calls with 20,000 random programs
	$(BIN)/python -m tests.capture_law $(ARGS)

clean: ## remove .venv, builds and caches
	rm -rf .venv .cache dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
