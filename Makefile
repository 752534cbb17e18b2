# What this repository can do; `make` alone lists it. Every target makes the Python environment that
# it needs (tools/environment.py), once.

PYTHON ?= python3
MODEL ?=
DRAFT ?=
SIZE ?=
TESTS ?= tests
ARGS ?=

# A recipe's python, in the environment for this machine, with this clone on its search path.
IN_ENVIRONMENT = python="$$($(PYTHON) tools/environment.py --print-python)" && \
	PYTHONPATH="$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}" "$$python"
IN_LIGHT_ENVIRONMENT = $(subst --print-python,--light --print-python,$(IN_ENVIRONMENT))
IN_FULL_ENVIRONMENT = $(subst --print-python,--full --print-python,$(IN_ENVIRONMENT))
PYTEST = -m pytest --timeout=900
# Two files of tests at a time, in order, so that the quick ones come last; the tests of a file share
# their servers. WORKERS=0: one after the other.
WORKERS ?= 2
PARALLEL = -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help
help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*  ## /  make \1|/p' $(MAKEFILE_LIST) | \
		awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

.PHONY: setup
setup:  ## make the environment and print its Python
	@$(PYTHON) tools/environment.py

.PHONY: test
test:  ## all tests that this machine can run; TESTS=tests/unit or ARGS="-k chain" narrow
	@$(IN_ENVIRONMENT) $(PYTEST) $(PARALLEL) $(TESTS) $(ARGS)

.PHONY: test-cpu
test-cpu:  ## the tests that need no GPU, in the light environment
	@$(IN_LIGHT_ENVIRONMENT) $(PYTEST) $(PARALLEL) $(TESTS) --ignore=tests/gpu $(ARGS)

.PHONY: test-gpu
test-gpu:  ## the tests that need a GPU, in the full environment
	@$(IN_FULL_ENVIRONMENT) $(PYTEST) tests/gpu $(ARGS)

.PHONY: demo
demo:  ## serve the bundled pair, drive load over it, show what happens; two minutes, no GPU
	@$(IN_ENVIRONMENT) -m sglang_specv2.demo --figure build/demo.svg $(ARGS)

.PHONY: serve
serve:  ## serve MODEL= with DRAFT=; without them the bundled pair on the CPU
	@test -n "$(MODEL)" -o -z "$(DRAFT)" || { \
		echo "make serve: DRAFT= needs MODEL= beside it" >&2; exit 1; }
	@$(IN_ENVIRONMENT) -m sglang_specv2.cli.main serve $(if $(MODEL),--model-path "$(MODEL)",--cpu) \
		$(if $(DRAFT),--speculative-algorithm EAGLE3 --speculative-draft-model-path "$(DRAFT)" \
		--speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3) $(ARGS)

.PHONY: benchmark
benchmark:  ## compare plain, speculating and switching servers; SIZE=smoke needs no GPU
	@$(IN_ENVIRONMENT) -m sglang_specv2.cli.main bench $(if $(SIZE),--size "$(SIZE)") \
		$(if $(MODEL),--model "$(MODEL)") $(if $(DRAFT),--draft "$(DRAFT)") $(ARGS)

.PHONY: lint
lint:  ## style (ruff) and types (mypy)
	@$(IN_ENVIRONMENT) -m ruff check . && $(IN_ENVIRONMENT) -m ruff format --check . && \
		$(IN_ENVIRONMENT) -m mypy

.PHONY: docs
docs:  ## build the documentation site into build/site; any warning fails
	@$(IN_ENVIRONMENT) -m tools.documentation.flags
	@NO_MKDOCS_2_WARNING=1 $(IN_ENVIRONMENT) -m mkdocs build --strict

VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' sglang_specv2/version.py)

.PHONY: docker
docker:  ## build the image for a GPU; ARGS="--build-arg …", see docker/README.md
	docker build -f docker/Dockerfile -t sglang-specv2 --build-arg VERSION=$(VERSION) $(ARGS) .

.PHONY: docker-cpu
docker-cpu:  ## build the image that serves the bundled pair on a CPU
	docker build -f docker/Dockerfile.cpu -t sglang-specv2-cpu \
		--build-arg VERSION=$(VERSION) $(ARGS) .

.PHONY: docker-test
docker-test:  ## check and build the images and serve from them, without a container engine
	@$(PYTHON) docker/test.py
