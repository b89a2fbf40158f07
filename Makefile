# `make` lists the targets. Each does its own set-up; needed: make and Python 3.11 or newer.
# Another interpreter: make PYTHON=python3.13 test

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
PEERS := .venv/peers
SITE := .venv/site
GET_PEERS := $(BIN)/pip install --quiet --disable-pip-version-check --no-deps
# Three on two cores: tests of real processes mostly wait. A worker that dies ends the run: without it,
# the tests of its group would be waited for.
PYTEST := $(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart=0
SOURCES := oncecast pyspark_oncecast.py pipelines tests tools $(sort $(dir $(wildcard bench/*.py)))

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## watch three nodes survive a kill -9 under load, and Spark audit it: a minute
	@$(BIN)/python -m oncecast demo --out build/demo

quick: $(READY) ## unit tests: no processes, no long scenarios
	@$(PYTEST) --ignore=tests/live -m "not long and not mutants and not soak" --hypothesis-profile=quick

test: $(READY) ## all tests
	@$(PYTEST) -m "not mutants and not soak"

soak: $(READY) ## long campaigns with more seeds than make test has time for: an hour or so
	@$(PYTEST) -m soak

mutants: $(READY) ## take away one rule at a time, and see which test notices
	@$(BIN)/python tools/mutants.py

mutate: $(READY) ## generate N mutants of the pure packages and list those that no test notices
	@$(BIN)/python -m tools.mutate $(FILES) -n $(or $(N),1000) --seed $(or $(SEED),0) --jobs $(or $(JOBS),2)

bench: $(READY) $(PEERS) ## measure the speed on this machine, beside Redis, NATS and RabbitMQ
	@$(BIN)/oncecast sim bench
	@for file in $(filter-out %/__init__.py,$(wildcard bench/*.py)); do $(BIN)/python $$file || exit 1; done
	@mkdir -p build
	@$(BIN)/python -m bench.cost --json build/cost.json
	@$(BIN)/python -m bench.peers --json build/peers.json
	@$(BIN)/python -m bench.group --json build/group.json
	@$(BIN)/python -m bench.ring --json build/ring.json
	@$(BIN)/python -m bench.spark --json build/spark.json
	@$(BIN)/python -m bench.streams --json build/streams.json
	@$(BIN)/python -m bench.queues --json build/queue.json
	@$(BIN)/python -m bench.queues.beside --messages 20000 --json build/queue-beside.json

check: $(READY) ## format, lint, types, layers, docs
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/mypy $(SOURCES)
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.check_docs

docs: $(READY) $(SITE) ## build the documentation site in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html, or run: $(BIN)/mkdocs serve"

format: $(READY) ## rewrite what can be formatted, fixed or generated
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)
	@$(BIN)/python -m tools.check_docs --write

lock: ## choose versions anew and write them to requirements.lock
	@PYTHON=$(PYTHON) tools/lock.sh

clean: ## remove the environment and all caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("oncecast needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + "; name another one: make PYTHON=python3.13")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --requirement requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/pip check --disable-pip-version-check
	@touch $@

# What cannot be had here, `make bench` does without: it says so, and tries again the next time.
$(PEERS): requirements-bench.lock $(READY)
	@if $(GET_PEERS) --requirement $<; then touch $@; \
	else for pin in $$(grep -v '^#' $<); do $(GET_PEERS) $$pin || echo "bench: cannot get $$pin" >&2; done; fi

$(SITE): requirements-docs.lock $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --requirement $<
	@touch $@

.PHONY: help demo quick test soak mutants mutate bench check docs format lock clean
