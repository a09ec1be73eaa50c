# Every target sets up what it needs: a virtual environment in .venv, and the broker's jars.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
END_TO_END := from-topic,topic-and-table

.DEFAULT_GOAL := help
.PHONY: help demo demo-e2e demo-past demo-state demo-cdc test test-fast check types rules docs chaos chaos-quick chaos-soak soak mutants compat compat-smoke compat-spark model bench bench-quick bench-scale bench-backlog bench-queries bench-schemas bench-past bench-reading bench-sending bench-tables bench-state bench-log bench-hostile setup wheel clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: setup ## One job on real input under kills, in two ways: a table, a page; 2 minutes
	$(BIN)/python -m examples.flights

demo-e2e: setup ## Topic to topic and table, on a cluster, under kills: a table, a page; 4 minutes
	$(BIN)/python -m examples.baskets

demo-past: setup ## A topic's past in S3 and in a Delta table, and one SQL query over all of it: a table, a page; 2 minutes
	$(BIN)/python -m examples.past

demo-state: setup ## A service that counts flights in Pulsar itself, under kills, in two ways: a table, a page; 1 minute
	$(BIN)/python -m examples.state

demo-cdc: setup ## Changes of a shop in a Delta table, PostgreSQL and a topic at once, under kills: a table, a page; 3 minutes
	$(BIN)/python -m examples.cdc

test: setup ## All tests but those of make check, on real brokers and real Spark, three files at a time
	$(BIN)/python -m pytest -n 3 --dist loadfile --ignore tests/test_tidy.py --ignore tests/test_words.py

test-fast: $(STAMP) ## The tests that need neither broker nor JVM nor patience
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not broker and not chaos and not release and not slow' --ignore tests/model

check: types rules docs ## Formatting, lint, types, the rules of the house, plain words

types: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

rules: $(STAMP)
	$(BIN)/python -m pytest -q tests/test_tidy.py tests/test_words.py

docs: $(STAMP) ## The docs as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

chaos-quick: setup ## Two schedules of random faults, checked
	$(BIN)/eos chaos run --schedules 2 --seed 87 --epochs 14 --report build/chaos-quick

chaos: setup ## Each fault alone, 240 random schedules, the harness's own long tests; takes hours
	$(BIN)/eos chaos run --singles --report build/chaos-singles
	$(BIN)/eos chaos run --schedules 60 --seed 1000 --report build/chaos
	$(BIN)/eos chaos run --brokers 2 --singles --faults cluster --report build/chaos-cluster-singles
	$(BIN)/eos chaos run --brokers 2 --schedules 40 --seed 20000 --epochs 18 --faults cluster,driver,executor,network --report build/chaos-cluster
	$(BIN)/eos chaos run --brokers 2 --schedules 20 --seed 30000 --epochs 18 --always $(END_TO_END),windowed-counts --report build/chaos-windows
	$(BIN)/eos chaos run --brokers 2 --schedules 20 --seed 31000 --epochs 18 --always $(END_TO_END),stream-join --report build/chaos-join
	$(BIN)/eos chaos run --brokers 2 --schedules 20 --seed 32000 --epochs 18 --always $(END_TO_END),stateful-rocksdb-1 --report build/chaos-once
	$(BIN)/eos chaos run --schedules 10 --seed 33000 --always from-tiered --faults storage,driver,executor,broker,source --report build/chaos-tiered
	$(BIN)/eos chaos run --schedules 10 --seed 34000 --always archiving --faults archive,driver,network,broker,source --report build/chaos-archiving
	$(BIN)/eos chaos run --schedules 20 --seed 48000 --always encrypted --report build/chaos-encrypted
	$(BIN)/eos chaos run --schedules 20 --seed 48100 --always from-chunks --faults source,driver,executor,broker --report build/chaos-chunks
	$(BIN)/eos chaos run --schedules 20 --seed 48200 --always counting --faults state,broker,driver,executor --report build/chaos-counting
	$(BIN)/python -m pytest -m chaos

chaos-soak: setup ## One life of a driver, small epochs, now and then a fault: it must not grow; 30 minutes
	$(BIN)/eos chaos run --soak-minutes 30 --report build/chaos-soak

soak: setup ## An hour, 100 million rows from a topic to a topic and a table: exact, and nothing grows
	$(BIN)/eos chaos run --soak-minutes 60 --soak-rows 100000000 --brokers 2 --report build/soak

mutants: setup ## Break each guarantee in turn: the test that is named for it must turn red
	$(BIN)/python -m tests.mutants

compat: setup ## The broker's tests, a short chaos run and the demo on each release of Pulsar; 85 minutes
	$(BIN)/pip install --quiet --progress-bar off -e '.[bench]'
	$(BIN)/python -m tests.compat pulsar

compat-smoke: setup ## On the oldest PySpark: a driver killed after PREPARED, an executor killed, all read back; 3 minutes
	$(BIN)/python -m tests.compat spark --smoke 3.5.9

compat-spark: setup ## The tests of sinks and source, a short chaos run and the demo on each release of PySpark; hours
	$(BIN)/pip install --quiet --progress-bar off -e '.[bench]'
	$(BIN)/python -m tests.compat spark

model: $(STAMP) ## Search the protocol state by state, and break each of its rules
	$(BIN)/python -m tests.model

bench: setup ## eos next to its alternatives, in one run: tables, plots; takes long
	$(BIN)/pip install --quiet --progress-bar off -e '.[bench]'
	$(BIN)/python -m bench compare --page docs/measured.md
	$(BIN)/python -m bench schemas --page docs/measured.md
	$(BIN)/python -m bench reading --page docs/measured.md
	$(BIN)/python -m bench sending --page docs/measured.md

bench-quick: setup ## The main figures, each beside its peer; 10 minutes
	$(BIN)/pip install --quiet --progress-bar off -e '.[bench]'
	$(BIN)/python -m bench quick --page docs/measured.md --ratios-page docs/performance.md

bench-scale: setup ## Epochs over 3,000 partitions, with 200 tasks; 4 minutes
	$(BIN)/pip install --quiet --progress-bar off -e '.[bench]'
	$(BIN)/python -m bench scale

bench-backlog: setup ## An hour's backlog in 3,000 topics; half an hour, 60 GB of disk
	$(BIN)/pip install --quiet --progress-bar off -e '.[bench]'
	$(BIN)/python -m bench backlog --page docs/performance.md

bench-queries: setup ## Ten queries in one driver, one by one and all at once; 4 minutes
	$(BIN)/pip install --quiet --progress-bar off -e '.[bench]'
	$(BIN)/python -m bench queries

bench-schemas: setup ## The same records by each schema, and by other clients; 5 minutes
	$(BIN)/pip install --quiet --progress-bar off -e '.[bench]'
	$(BIN)/python -m bench schemas --page docs/measured.md

bench-reading: setup ## Topics read in each way, and planning; 9 minutes
	$(BIN)/pip install --quiet --progress-bar off -e '.[bench]'
	$(BIN)/python -m bench reading --page docs/measured.md

bench-past: setup ## Offloaded ledgers, an archive, and SQL over both; 10 minutes
	$(BIN)/pip install --quiet --progress-bar off -e '.[bench]'
	$(BIN)/python -m bench past --page docs/measured.md

bench-sending: setup ## Messages sent one by one, by eos and by pulsar-client; 2 minutes
	$(BIN)/pip install --quiet --progress-bar off -e '.[bench]'
	$(BIN)/python -m bench sending --page docs/measured.md

bench-tables: setup ## PostgreSQL and upserts next to their alternatives; 10 minutes
	$(BIN)/pip install --quiet --progress-bar off -e '.[bench]'
	$(BIN)/python -m bench tables --page docs/measured.md

bench-hostile: setup ## Memory of each way to read hostile entries; 15 minutes
	$(BIN)/python -m bench hostile
	$(BIN)/python -m bench hostile-broker

bench-state: setup ## A KeyedState of a million keys under 50 kills: exact, and how fast; 10 minutes
	$(BIN)/pip install --quiet --progress-bar off -e '.[bench]'
	$(BIN)/python -m bench state

bench-log: $(STAMP) ## A commit log after 100 and after 100,000 epochs; 4 minutes
	$(BIN)/pip install --quiet --progress-bar off -e '.[bench]'
	$(BIN)/python -m bench log

# Compiled as pip compiles a wheel: where Python may not write, each of Spark's workers would do it.
setup: $(STAMP) ## Only set up: packages, compiled modules, the broker's jars
	@$(BIN)/python -m compileall -q -j 2 bench catalog chaos eos examples recovery sinks sources tests
	@$(BIN)/eos broker fetch

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "eos needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --progress-bar off -e '.[spark,delta,test,demo,docs]'
	@touch $@

wheel: ## Build the wheel into dist/
	$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir dist .

clean: ## Remove what was built; the jars in the user's cache stay
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
