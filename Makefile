# `make` alone lists the targets. Each target does its own set-up: nothing but Python 3.11 or
# newer, make and access to the package registries is needed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
SHELL := /bin/bash
# Extra arguments for pytest, as in: make test ARGS="tests/unit/tools -x"
ARGS ?=
# More processes than small machines have cores, since many tests wait. A file's tests stay together,
# so that its module-wide fixtures start once; tests/conftest.py says which files come first.
WORKERS ?= 4
# Which environments `make test-handoff` makes and tests with; see tools/setup-handoff.sh.
HANDOFF ?= loaders trackers trainers slime_areal prime_tinker_art
# Which bridges `make test-bridges` tests; see tools/setup-bridges.sh.
BRIDGES ?= $(basename $(notdir $(filter-out %.lock.txt,$(wildcard tools/bridges/*.txt))))
# What vLLM computes on: cpu or gpu.
DEVICE ?= cpu
# An older vLLM for `make test-vllm`: 0.24 or 0.25, see tools/setup-vllm.sh.
VLLM ?=

.DEFAULT_GOAL := help
.PHONY: audit help setup demo docs test test-all test-bridges test-clients test-consul test-keepalive test-deploy test-handoff test-hosts test-images test-kubernetes test-observe test-programs test-sandboxes test-slurm test-view test-vllm view view-pictures check format proto wheel test-wheel lock release-image sbom bench bench-clients bench-codec bench-export bench-gateway bench-instructions bench-journal bench-model bench-peers bench-profile bench-resource bench-routing bench-rows bench-sandboxes bench-scale bench-scaling bench-side-data bench-tokens bench-trainer bench-transport bench-view bench-xds chaos chaos-damage chaos-programs chaos-sandboxes clean compare-gateways fuzz scaling capture-law chaos-ranks

help: ## list the targets
	@echo "gymmesh: the targets of make"
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv from the locked requirements (nothing to do when it is up to date)
	@PYTHON="$(PYTHON)" tools/setup.sh

demo: setup ## collect real, scored rollouts from a small local language model
	@tools/demo.sh

docs: ## build the documentation as a site in dist/docs, and check its links
	@PYTHON="$(PYTHON)" tools/docs.sh

test: setup ## run the tests (ARGS=… goes to pytest)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

audit: setup ## put the verifiers of all ready environments on trial, with all attacks (minutes)
	GYMMESH_TEST_AUDIT=1 $(BIN)/python -m pytest -n $(WORKERS) tests/audit $(ARGS)

test-all: setup ## run check and every test target, one after the other, and print one table
	@tools/test-all.sh $(ARGS)

test-bridges: setup ## others' environments here, and ours there, by their own code (BRIDGES="harbor ors")
	@tools/setup-bridges.sh $(BRIDGES) >/dev/null
	@set -e; for name in $(BRIDGES); do \
		python=$$(tools/setup-bridges.sh $$name); \
		GYMMESH_TEST_BRIDGE=$$name GYMMESH_BRIDGE_PYTHON=$$python $(BIN)/python -m pytest tests/bridges/$$name $(ARGS); \
	done

test-clients: setup ## build and test the clients in Go, TypeScript, Java and Rust (LANGUAGES="go rust")
	@tools/test-clients.sh $(LANGUAGES)

test-consul: setup ## run the tests that need a real Consul agent, which is built from source first
	@tools/test-clients.sh --build $(or $(LANGUAGES),go typescript rust)
	GYMMESH_TEST_CONSUL="$$(tools/setup-consul.sh)" \
		GYMMESH_TEST_CLIENTS="$(or $(LANGUAGES),go typescript rust)" \
		$(BIN)/python -m pytest tests/consul $(ARGS)

test-keepalive: setup ## hold idle connections to servers of grpc-go and grpc-java for minutes
	@tools/test-clients.sh --build go java
	GYMMESH_TEST_SLOW=1 GYMMESH_TEST_CLIENTS="go java" $(BIN)/python -m pytest -s tests/clients/test_keepalive.py $(ARGS)

test-handoff: setup ## exports, logs and figures in others' own code (HANDOFF="loaders trackers")
	@set -e; for name in $(HANDOFF); do \
		env=$$(tools/setup-handoff.sh $$name); \
		GYMMESH_TEST_HANDOFF=$$name $$env/bin/python -m pytest -p no:cacheprovider tests/handoff/$$name $(ARGS); \
	done

test-hosts: setup ## cut hosts apart, which are network namespaces: a mesh, and a trainer behind NAT (needs root)
	GYMMESH_TEST_HOSTS="$$(tools/setup-consul.sh)" $(BIN)/python -m pytest tests/hosts $(ARGS)

test-kubernetes: setup ## run the tests that need a real Kubernetes API server, built from source first
	GYMMESH_TEST_KUBERNETES="$$(tools/setup-kubernetes.sh)" GYMMESH_TEST_HELM="$$(tools/setup-helm.sh)" \
		$(BIN)/python -m pytest tests/kubernetes $(ARGS)

test-deploy: setup ## lint, render and check the Helm chart and the images in deploy/, with Helm itself
	GYMMESH_TEST_HELM="$$(tools/setup-helm.sh)" $(BIN)/python -m pytest tests/deploy $(ARGS)

test-images: setup ## build the images without an engine's daemon, and try them (root, buildah, runc)
	@tools/test-images.sh

test-observe: setup ## let a real Prometheus, built from source first, watch a mesh: alerts, dashboards
	GYMMESH_TEST_PROMETHEUS="$$(tools/setup-prometheus.sh)" $(BIN)/python -m pytest tests/observe $(ARGS)

test-programs: setup ## run coding agents that people ship, unchanged, against a scripted model (npm)
	@tools/test-programs.sh $(ARGS)

test-sandboxes: setup ## run sandboxes on bubblewrap and on real daemons of Docker and Podman (root)
	@tools/test-sandboxes.sh $(ARGS)

test-slurm: setup ## run a mesh in a real Slurm, whose Debian packages are installed first (root)
	@tools/setup-debian.sh slurmctld slurmd slurm-client munge
	GYMMESH_TEST_SLURM=1 $(BIN)/python -m pytest tests/slurm $(ARGS)

test-view: setup ## test the page of gym-cli view and the site of make docs in a browser (needs npm)
	@tools/test-view.sh $(ARGS)

test-vllm: setup ## run the tests that need a real vLLM (DEVICE=gpu where there is one; VLLM=0.24)
	@DEVICE=$(DEVICE) VLLM=$(VLLM) tools/setup-vllm.sh >/dev/null
	GYMMESH_TEST_VLLM=$(DEVICE) $${VLLM_ENV:-.cache/vllm/env$(addprefix -,$(VLLM))}/bin/python -m pytest \
		$(if $(VLLM),tests/vllm/test_token_ids.py tests/vllm/test_nemo_rl.py,tests/vllm) $(ARGS)

check: setup ## formatter, linter, types, import rules, contract and stubs: all that CI checks
	@tools/check.sh

format: setup ## format the code and fix what the linter can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: setup ## regenerate what is made of proto/gymmesh: all stubs, rows (LANGUAGES="go rust")
	$(BIN)/python tools/generate.py
	$(BIN)/python -m tools.rows
	@tools/test-clients.sh --generate $(or $(LANGUAGES),go typescript rust)

view: ## build the page of gym-cli view into clients/view/gymmesh_view/static (needs npm)
	@tools/setup-view-page.sh
	npm --prefix clients/view/ui run --silent build

view-pictures: setup ## draw the pictures of docs/how-to/view.md anew (needs Chromium)
	@tools/test-view.sh --pictures

wheel: ## build the wheel into dist/ (needs no development environment)
	@PYTHON="$(PYTHON)" tools/wheel.sh

test-wheel: ## build the wheel, install it into a fresh environment, and run gym-cli from there
	@PYTHON="$(PYTHON)" tools/test-wheel.sh

lock: setup ## resolve requirements/*.txt anew from pyproject.toml (ARGS=--upgrade for the newest)
	tools/lock.sh $(ARGS)

release-image: setup ## write the contract's image, which buf breaking compares with from then on
	$(BIN)/python tools/buf_check.py release-image

sbom: setup ## write what the images hold, as CycloneDX, to dist/sbom.cdx.json
	@tools/sbom.sh

bench: setup ## measure what a rollout costs, beside a bare loop and peers (ARGS=… as the script's)
	$(BIN)/python tests/scale/bench_rollout.py $(ARGS)

bench-clients: setup ## measure the collectors in all languages; builds them first (ARGS=…)
	@tools/build-collectors.sh
	$(BIN)/python tests/scale/bench_clients.py $(ARGS)

bench-codec: setup ## measure the codec against orjson
	$(BIN)/python tests/scale/bench_codec.py

bench-export: setup ## measure exports against loops that do the same by hand (ARGS="--rows N")
	$(BIN)/python tests/scale/bench_export.py $(ARGS)

bench-gateway: setup ## measure captured calls beside verifiers, programs at once, a long session (ARGS="--quick")
	$(BIN)/python tests/scale/bench_gateway.py $(ARGS)

bench-instructions: setup ## count the machine instructions of a rollout, with valgrind (ARGS=…)
	$(BIN)/python tests/scale/bench_instructions.py $(ARGS)

bench-journal: setup ## measure what recording costs, and a run of a million rollouts (ARGS=…)
	$(BIN)/python tests/scale/bench_journal.py $(ARGS)

bench-model: setup ## measure what a model call costs against bare aiohttp and openai (ARGS=…)
	$(BIN)/python tests/scale/bench_model.py $(ARGS)

bench-peers: ## install the peers that `make bench` compares with into .cache/bench
	tools/setup-bench-peers.sh

bench-profile: setup ## measure the memory of a profile of a million rows (ARGS="--rows N")
	$(BIN)/python tests/scale/bench_profile.py $(ARGS)

bench-resource: setup ## measure tool calls, verdicts, sessions and the sandbox
	$(BIN)/python tests/scale/bench_resource.py

bench-routing: setup ## simulate ways to route rollouts over endpoints (ARGS=… as the script's)
	$(BIN)/python tests/scale/bench_routing.py $(ARGS)

bench-rows: setup ## measure the rows of rollouts of 2 to 512 calls (ARGS="--events 337000")
	$(BIN)/python tests/scale/bench_rows.py $(ARGS)

bench-sandboxes: setup ## measure sandboxes beside none and the peers' local ones (ARGS="--quick")
	$(BIN)/python tests/scale/bench_sandboxes.py $(ARGS)

bench-scale: setup ## measure 10,000 rollouts at a time, 100,000 in a row, and long ones (ARGS=…)
	$(BIN)/python tests/scale/bench_scale.py $(ARGS)

bench-scaling: setup ## measure at the small end what the capacity model computes with (ARGS=…)
	$(BIN)/python -m tests.scale.bench_scaling $(ARGS)

bench-side-data: setup ## measure 256 rollouts of 100 MB of side data through a mesh (ARGS="--quick")
	$(BIN)/python tests/scale/bench_side_data.py $(ARGS)

bench-tokens: setup ## measure tokens/s against vLLM's own benchmark (URL=http://…/v1 MODEL=…)
	$(BIN)/python tests/scale/bench_tokens.py --url "$(URL)" --model "$(MODEL)" $(ARGS)

bench-trainer: setup ## measure TrainerCollector beside TRL's own loop and verifiers (ARGS="--quick")
	$(BIN)/python tests/scale/bench_trainer.py $(ARGS)

bench-transport: setup ## measure a call between processes, plain and over the mux (ARGS=…)
	$(BIN)/python tests/scale/bench_transport.py $(ARGS)

bench-view: setup ## measure the index and the answers of gym-cli view (ARGS="--rows N --row-bytes N")
	$(BIN)/python tests/scale/bench_view.py $(ARGS)

bench-xds: setup ## measure how soon gRPC clients follow the registry through xDS (ARGS=…)
	$(BIN)/python -m tests.scale.bench_xds $(ARGS)

scaling: setup ## print the capacity model of docs/ideas/scaling.md (ARGS=--write writes the page)
	$(BIN)/python -m tests.scale.scaling_sim $(ARGS)

chaos: setup ## hurt 20 runs of 500 rollouts in every way, and judge them (ARGS=…)
	$(BIN)/python -m tests.chaos $(ARGS)

chaos-damage: setup ## damage 250 files of finished runs, and see what readers make of each (ARGS=…)
	$(BIN)/python -m tests.chaos.damage $(ARGS)

chaos-programs: setup ## kill programs, gateway, sandboxes, model and environment of 400 rollouts (root)
	$(BIN)/python -m tests.chaos.programs $(ARGS)

chaos-ranks: setup ## kill ranks that share a run's groups, and its collector (ARGS=…)
	$(BIN)/python -m tests.ranks $(ARGS)

chaos-sandboxes: setup ## kill services, owners and daemons of 2,000 sandboxes (root; ARGS=…)
	@tools/test-sandboxes.sh --chaos $(ARGS)

fuzz: setup ## send what is malformed to every RPC, endpoint and port, ten minutes each (ARGS=…)
	$(BIN)/python -m tests.fuzz $(ARGS)

compare-gateways: setup ## run the gateway suite over ours and other projects' gateways (PyPI)
	@tools/compare-gateways.sh $(ARGS)

capture-law: setup ## hold the tree of captured calls against 20,000 random programs (ARGS=…)
	$(BIN)/python -m tests.capture_law $(ARGS)

clean: ## remove .venv, builds and caches
	rm -rf .venv .cache dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
