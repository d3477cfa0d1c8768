# Two commands matter: `make run` serves a tiny model with speculation on, `make test` runs everything that must pass.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PORT   ?= 8000
ARGS   ?=
MODELS := .cache/models

# Images: whatever builds Dockerfiles, and the base that holds vLLM.
DOCKER ?= docker
IMAGE  ?= specdec-launcher
BASE_IMAGE ?= vllm/vllm-openai:v0.32.0

# The CPU engine: one process, no compilation, a small key-value cache.  A GPU needs none of it, and ignores it.
CPU_ENGINE := VLLM_ENABLE_V1_MULTIPROCESSING=0 VLLM_CPU_KVCACHE_SPACE=1 OMP_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help setup run test check static unit integration storage storage-tools deployment deployment-tools engine aiperf \
	measuring-tools image image-cpu sbom wheels test-image image-tools lock fix bench bench-start bench-fetch bench-middleware \
	bench-image bench-crash docs tables clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 17

setup: $(VENV)/.ready launcher/profiles.json ## Virtual environment: launcher, test tools, engine (CPU build where there is no GPU)

$(VENV)/.ready: pyproject.toml tools/install_engine.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable . --group dev
	$(BIN)/python tools/install_engine.py
	$(BIN)/python -m compileall -q launcher
	touch $@

launcher/profiles.json: $(VENV)/.ready $(wildcard profiles/*.yaml launcher/profiles/*.py)
	$(BIN)/python -m launcher.profiles.compile profiles $@

run: setup ## Serve the embedded checkpoint on PORT (8000) with speculation on; NIM_* and ARGS pass through
	@$(BIN)/python -m tests.models $(MODELS) mtp
	@$(CPU_ENGINE) \
	NIM_MODEL_PATH="$${NIM_MODEL_PATH:-$(CURDIR)/$(MODELS)/mtp}" \
	NIM_SPECDEC_ENABLE="$${NIM_SPECDEC_ENABLE:-1}" \
	NIM_SERVED_MODEL_NAME="$${NIM_SERVED_MODEL_NAME:-tiny}" \
	NIM_SERVER_PORT="$(PORT)" \
	NIM_MAX_MODEL_LEN="$${NIM_MAX_MODEL_LEN:-1024}" \
	NIM_DISABLE_CUDA_GRAPH="$${NIM_DISABLE_CUDA_GRAPH:-1}" \
	NIM_CACHE_PATH="$${NIM_CACHE_PATH:-$(CURDIR)/.cache/nim}" \
	NIM_WORKSPACE="$${NIM_WORKSPACE:-$(CURDIR)/.cache/workspace}" \
	VLLM_CACHE_ROOT="$${VLLM_CACHE_ROOT:-$(CURDIR)/.cache/vllm}" \
	exec $(BIN)/launcher serve $(ARGS)

test: setup measuring-tools static unit integration storage deployment engine aiperf test-image ## Everything that must pass

check: setup static unit ## The everyday loop, under a minute

static:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/make_docs.py --check
	$(BIN)/python tools/make_dashboard.py --check

unit:
	$(BIN)/python -m pytest tests/unit tests/golden -q

integration:
	$(BIN)/python -m pytest tests/integration -q

storage: storage-tools
	$(BIN)/python -m pytest tests/storage -q

storage-tools: setup
	$(BIN)/python tools/install_storage_tools.py servers ngc modelscope

deployment: deployment-tools
	$(BIN)/python -m pytest tests/deployment -q

deployment-tools: setup
	$(BIN)/python tools/install_deployment_tools.py

engine:
	$(BIN)/python -m pytest tests/engine -q

measuring-tools: setup ## AIPerf, Prometheus and cairo for the tests
	$(BIN)/python tools/install_measuring_tools.py

aiperf: measuring-tools ## The guide's benchmark, as typed, with the real AIPerf
	$(BIN)/python -m pytest tests/aiperf -q

# The same commit gives the same files and times (docs/image.md).
COMMIT_TIME = $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
LABELS = --build-arg VERSION=$(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' launcher/__init__.py) \
	--build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null || echo unknown) \
	--build-arg CREATED=$(shell date -u -d @$(COMMIT_TIME) +%Y-%m-%dT%H:%M:%SZ)

# Said, because an image made of old wheels looks like any other.
GIVEN = @! ls docker/wheels/*.whl >/dev/null 2>&1 || echo "made of the wheels in docker/wheels; remove them to fetch and build anew"

image: ## Build the container image IMAGE (specdec-launcher) on BASE_IMAGE with DOCKER
	$(GIVEN)
	$(DOCKER) build -f docker/Dockerfile -t $(IMAGE) --build-arg BASE_IMAGE=$(BASE_IMAGE) \
		--build-arg SOURCE_DATE_EPOCH=$(COMMIT_TIME) $(LABELS) .

image-cpu: ## The same for machines without a GPU, tagged IMAGE:cpu
	$(GIVEN)
	$(DOCKER) build -f docker/Dockerfile.cpu -t $(IMAGE):cpu --build-arg SOURCE_DATE_EPOCH=$(COMMIT_TIME) $(LABELS) $(CPU_ARGS) .

sbom: image-tools ## What the image adds to its base, as CycloneDX: dist/sbom.json
	$(BIN)/python docker/make_wheels.py .cache/sbom-wheels
	$(BIN)/python tools/make_sbom.py .cache/sbom-wheels dist/sbom.json

wheels: setup ## Put every wheel that the image needs into docker/wheels: it is then built without network
	$(BIN)/python docker/make_wheels.py docker/wheels $(WHEELS_FOR)

test-image: image-tools ## Build the images on a stand-in base and run them (podman)
	$(BIN)/python -m pytest tests/image -q

image-tools: setup
	$(BIN)/python -m tools.install_image_tools

LOCK := .cache/image-tools/bin/uv pip compile --quiet --system-certs --universal --python-version 3.11 \
	--generate-hashes --no-annotate --custom-compile-command "make lock"

lock: image-tools ## Pin the image's dependencies anew where pyproject.toml asks for it
	$(LOCK) pyproject.toml --output-file docker/requirements.txt
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
		| $(LOCK) - --output-file docker/build-requirements.txt

fix: setup ## Let ruff repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: bench-start bench-fetch bench-middleware ## Measure start-up, fetching and the middleware, each beside its peers in one run

bench-start: setup
	$(BIN)/python -m compileall -q launcher
	$(BIN)/python -m tests.bench.warm_start

bench-fetch: setup
	$(BIN)/python tools/install_storage_tools.py
	$(BIN)/python -m tests.bench.fetch

bench-middleware: setup
	$(BIN)/python -m tests.bench.middleware --server

bench-image: image-tools ## Size of the image, and its share of a start, beside the bare base
	$(BIN)/python -m tests.bench.image

bench-crash: storage-tools ## 100 downloads of 1 GB, each killed once and finished (an hour)
	CRASH_TRIALS=100 CRASH_MEGABYTES=1000 $(BIN)/python -m pytest tests/storage/test_crash.py -q -s

docs: setup ## Regenerate docs/variables.md, docs/exit-codes.md, the settings schema and the dashboard
	$(BIN)/python tools/make_docs.py
	$(BIN)/python tools/make_dashboard.py

tables: setup ## Regenerate the vLLM version tables from the real packages and show what changed
	$(BIN)/python tools/make_tables.py --download

clean: ## Remove everything that the targets made
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis dist docker/wheels/*.whl
