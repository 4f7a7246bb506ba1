# Everything runs in .venv, built from pinned versions with nothing but Python (3.11 or newer) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test test-all lint bench clean

help:
	@echo "make demo      reproduce the paper's gridworld into out/gridworld (report.html, figure1.png, figure2.png)"
	@echo "make test      lint, types, import contracts and the test suite"
	@echo "make test-all  the same with the long statistical runs"
	@echo "make bench     speed against the plain way, as ratios"

demo: $(READY)
	$(BIN)/surefoot reproduce gridworld --out out/gridworld

test: lint
	$(BIN)/pytest -n 2 -m "not long"

test-all: lint
	$(BIN)/pytest -n 2

lint: $(READY)
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/surefoot bench

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# uv is used where present, since it is faster; pip does the same.
$(READY): pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Surefoot needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	@if command -v uv >/dev/null 2>&1; then \
	  uv pip install --quiet --python $(BIN)/python -r requirements.lock && \
	  uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e . ; \
	else \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . ; \
	fi
	touch $(READY)
