# Everything runs from .venv in this folder, which the first target that needs it makes with venv and pip alone.
PYTHON ?= python3
JOBS ?= 3
PYTEST_ARGS ?=
DEMO_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ROOMS := instrumentation/goodput collector/goodput_collector analytics/goodput_analytics dashboard/goodput_dashboard
BENCHES := $(wildcard $(addprefix benchmarks/,recorder.py overhead.py ingest.py ledger.py refresh.py collector.py scrape.py simulate.py))
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
# numpy and pandas would otherwise start a thread per core in every worker.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test soak bench lint format picture clean

help:  ## say what can be made
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(READY)  ## train a small model, break it on purpose, show where the time went
	$(BIN)/goodput demo $(DEMO_ARGS)

test: $(READY)  ## all tests but the long ones (under 8 minutes on 2 cores)
	$(BIN)/python -m pytest -m "not soak" -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

soak: $(READY)  ## the long fault tests
	$(BIN)/python -m pytest -m soak --timeout 3600 $(PYTEST_ARGS)

bench: $(READY)  ## the benchmarks, one after another; docs/PERFORMANCE.md holds their results
	@set -e; for bench in $(BENCHES); do echo "== $$bench"; $(BIN)/python $$bench; done

lint: $(READY)  ## ruff and mypy --strict
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

picture: $(READY)  ## draw the picture in the README again, from the run in DB=file.duckdb
	$(BIN)/python docs/make_picture.py $(DB)

clean:  ## remove what was built here, .venv too
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Made again when the dependencies change; the environment itself is kept.
$(READY): pyproject.toml constraints.txt
	@echo "Preparing $(VENV) (the first time takes some minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install -c constraints.txt -e '.[dev]' torch==2.13.0
	@touch $@
