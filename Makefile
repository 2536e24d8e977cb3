# `make demo` and `make test` do everything on a machine that has Python 3.11 or newer and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CHECKED := src tests benchmarks examples

.PHONY: help demo test test-cluster pytest lint format speed paper peers clean

help:
	@echo "make demo          fit the default and the paper's four methods, print a table, draw the pictures"
	@echo "make test          lint, types, imports, and all tests but those on a Ray cluster"
	@echo "make test-cluster  the tests that start a real Ray cluster; continuous integration runs both"
	@echo "make format        let ruff format the code"
	@echo "make speed         measure the speed table of benchmarks/speed"
	@echo "make paper         run the paper's study: its table and figures (QUICK=1: a first look in minutes; JOBS=2)"
	@echo "make peers         compare the default with other libraries (QUICK=1: four sets, in a quarter of an hour)"

demo: $(INSTALLED)
	$(BIN)/hetcal demo

# Side by side, because the type checker has one process only.
test: $(INSTALLED)
	$(MAKE) --jobs=2 lint pytest

# Two processes with one thread each: two threads each would compete for two cores. By file, because the code blocks of a
# page of docs build on each other; in the order of conftest.py, because files of few tests, which otherwise come last,
# are the slowest, and one process would wait for the other. Bytecode is kept, even where the environment says
# otherwise: the tests start hundreds of processes, each of which would compile the library anew.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest

pytest: $(INSTALLED)
	$(PYTEST) -m "not cluster" -n 2 --dist loadfile --no-loadscope-reorder

# One process, because a cluster has several of its own, and two clusters at once would compete for CPUs and memory.
test-cluster: $(INSTALLED)
	$(PYTEST) -m cluster

lint: $(INSTALLED)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

speed: $(INSTALLED)
	$(BIN)/python benchmarks/speed/run.py

# The quick version is written to a separate folder and does not change the study's table and figures.
PAPER := benchmarks/paper
SHOWN := $(PAPER)$(if $(QUICK),/quick)
JOBS ?= 2
paper: $(INSTALLED)
	$(BIN)/hetcal bench run $(PAPER)/protocol.toml --out $(SHOWN)/results --jobs $(JOBS) $(if $(QUICK),--quick)
	$(BIN)/hetcal bench table $(SHOWN)/results --format csv > $(SHOWN)/summary.csv
	$(BIN)/hetcal bench table $(SHOWN)/results --format cells > $(SHOWN)/cells.csv
	$(BIN)/hetcal bench table $(SHOWN)/results --format markdown > $(SHOWN)/table.md
	$(BIN)/hetcal bench figures $(SHOWN)/results --out $(SHOWN)
	$(BIN)/hetcal bench table $(SHOWN)/results

# All of it needs the tables of the study "tuning": HETCAL_TABLES=folder make peers.
PEERS := benchmarks/peers
PEERS_SHOWN := $(PEERS)$(if $(QUICK),/quick)
peers: $(VENV)/.peers
	$(BIN)/hetcal bench run $(PEERS)/protocol.toml --out $(PEERS_SHOWN)/results --jobs $(JOBS) $(if $(QUICK),--quick)
	$(BIN)/hetcal bench table $(PEERS_SHOWN)/results --format csv > $(PEERS_SHOWN)/summary.csv
	$(BIN)/hetcal bench table $(PEERS_SHOWN)/results --format cells > $(PEERS_SHOWN)/cells.csv
	$(BIN)/python $(PEERS)/claims.py $(PEERS_SHOWN)

$(VENV)/.peers: $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[peers]'
	touch $@

# torch first and with its exact version: otherwise pip may choose a build with gigabytes of GPU libraries.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build demo-output .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
