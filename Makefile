# `make` lists the targets. Each target installs what it needs. Requires make and Python 3.11 or newer.
# To use another interpreter: make PYTHON=python3.13 test

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
PEERS := .venv/peers
SITE := .venv/site
GET_PEERS := $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes
# Three workers on two cores, because tests with real processes mostly wait. A worker that dies ends the
# run; otherwise pytest would wait forever for the tests of its file.
PYTEST := $(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart=0
COMPILED_TESTS := $(addprefix tests/,kernel storage overlay dht replication simulator)
SOURCES := oncecast pyspark_oncecast.py pipelines deploy tests tools examples $(sort $(dir $(wildcard bench/*.py)))

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## kill one of three nodes under load and audit the result with Spark (a minute)
	@$(BIN)/python -m oncecast demo --out build/demo

quick: $(READY) ## run the unit tests, without processes and long scenarios
	@$(PYTEST) --ignore=tests/live -m "not long and not mutants and not soak" --hypothesis-profile=quick

test: $(READY) browser ## run all tests
	@$(PYTEST) -m "not mutants and not soak"

fast: $(READY) ## compile the hot modules in place; run it again after each change
	@$(BIN)/python -m tools.compile

pure: $(READY) ## remove the compiled modules
	@$(BIN)/python -m tools.compile --remove

# The copy leaves this tree pure. Low optimization, because compiling takes longer than these tests.
fast-test: $(READY) ## compile a copy and run unit tests of its protocols, storage and simulator
	@$(BIN)/python -m tools.compile --copy --level 1
	@ONCECAST_BUILD=compiled $(PYTEST) -o pythonpath="build/fast ." -m "not long and not pure and not mutants and not soak" --hypothesis-profile=quick $(COMPILED_TESTS)

wheels: $(READY) ## write a pure and a compiled wheel to dist/
	@$(BIN)/python -m tools.compile --copy
	@$(BIN)/python -m hatchling build --target wheel
	@ONCECAST_COMPILED=1 $(BIN)/python -m hatchling build --target wheel

dist: $(READY) ## write the source archive and the wheel of HEAD to dist/, and check that the build is reproducible
	@$(BIN)/python -m tools.dist

soak: $(READY) browser ## run long campaigns with many more seeds (about an hour)
	@$(PYTEST) -m soak

mutants: $(READY) ## remove one rule at a time and report the test that detects it
	@$(BIN)/python tools/mutants.py

mutate: $(READY) ## generate N mutants of the pure packages and list those that no test detects
	@$(BIN)/python -m tools.mutate $(FILES) -n $(or $(N),1000) --seed $(or $(SEED),0) --jobs $(or $(JOBS),2)

bench: $(READY) $(PEERS) ## compare the speed with Redis, NATS and RabbitMQ on this machine
	@$(BIN)/oncecast sim bench
	@for file in $(filter-out %/__init__.py,$(wildcard bench/*.py)); do $(BIN)/python $$file || exit 1; done
	@mkdir -p build
	@$(BIN)/python -m bench.cost --json build/cost.json
	@$(BIN)/python -m bench.peers --json build/peers.json
	@$(BIN)/python -m bench.group --json build/group.json
	@$(BIN)/python -m bench.ring --json build/ring.json
	@$(BIN)/python -m bench.spark --json build/spark.json
	@$(BIN)/python -m bench.streams --json build/streams.json
	@$(BIN)/python -m bench.workers --json build/workers.json
	@$(BIN)/python -m bench.queues --json build/queue.json
	@$(BIN)/python -m bench.kafka speed --json build/kafka.json
	@$(BIN)/python -m bench.queues.beside --messages 20000 --json build/queue-beside.json

interop: $(READY) ## run unmodified Kafka clients in many languages, and show what works
	@$(BIN)/python -m bench.interop

check: $(READY) ## check format, lint, types, layers, mutants, docs and prose
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/mypy $(SOURCES)
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.check_mutants
	@$(BIN)/python -m tools.check_docs
	@$(BIN)/python -m tools.check_prose

docs: $(READY) $(SITE) ## build the documentation site in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html, or run: $(BIN)/mkdocs serve"

format: $(READY) ## format the code and update generated tables
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)
	@$(BIN)/python -m tools.check_docs --write

lock: ## update the versions in requirements.lock, and the hashes of all lock files
	@PYTHON=$(PYTHON) tools/lock.sh

clean: ## remove the environment and all caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find oncecast -name "*.so" -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("oncecast needs Python 3.11 or newer, but $(PYTHON) is " + sys.version.split()[0] + "; use another interpreter: make PYTHON=python3.13")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/pip check --disable-pip-version-check
	@touch $@

# Debian's Chromium, for the tests of the console. Without it, these tests fail and name what is missing.
browser: $(READY)
	@$(BIN)/python -m tools.browser

# `make bench` reports and skips packages that cannot be installed, and tries again the next time.
$(PEERS): requirements-bench.lock $(READY)
	@if $(GET_PEERS) --requirement $<; then touch $@; \
	else sed -e '/^#/d' -e ':a' -e '/\\$$/{N;s/ *\\\n */ /;ba' -e '}' $< | while read -r pin; do \
		echo "$$pin" | $(GET_PEERS) --requirement /dev/stdin || echo "bench: cannot get $${pin%% *}" >&2; done; fi

$(SITE): requirements-docs.lock $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement $<
	@touch $@

.PHONY: help browser demo quick test fast pure fast-test wheels dist soak mutants mutate bench interop check docs format lock clean
