# Everything runs in .venv, built from pinned and hashed wheels with nothing but Python (3.11 or newer) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
LOCKED := --require-hashes --only-binary :all:

.PHONY: help demo docs test test-all short-tests all-tests lint bench lock clean

help:
	@echo "make demo      reproduce the paper's gridworld into out/gridworld (report.html, figure1.png, figure2.png)"
	@echo "make docs      the documentation as a site, into out/docs (open out/docs/index.html)"
	@echo "make test      lint, types, import contracts and the test suite"
	@echo "make test-all  the same with the long statistical runs"
	@echo "make bench     speed against the plain way, as ratios"
	@echo "make lock      pin what pyproject.toml asks for anew, keeping the versions pinned so far; needs uv"

demo: $(READY)
	$(BIN)/surefoot reproduce gridworld --out out/gridworld

docs: $(READY_DEV)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs out/docs

# Lint runs beside the tests: it has one thread and would leave a core idle.
test: $(READY_DEV)
	$(MAKE) --no-print-directory -j 2 lint short-tests

test-all: $(READY_DEV)
	$(MAKE) --no-print-directory -j 2 lint all-tests

# Two processes of one thread each: more threads than cores make small matrices several times slower.
short-tests all-tests: export OPENBLAS_NUM_THREADS := 1

# Tests start many processes: each would compile anew what it imports, wherever this is set.
short-tests all-tests: export PYTHONDONTWRITEBYTECODE :=

# These compile much and compute little with it; the long ones have all optimisations.
short-tests: export JAX_DISABLE_MOST_OPTIMIZATIONS := 1

# Tests of one file go to one process, which makes once what they share; files in the order of tests/conftest.py.
short-tests: $(READY_DEV)
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not long"

all-tests: export SUREFOOT_EXAMPLES := 60
all-tests: $(READY_DEV)
	$(BIN)/pytest -n 2 --dist worksteal

lint: $(READY_DEV)
	$(BIN)/ruff check src tests examples docs/conf.py
	$(BIN)/ruff format --check src tests examples docs/conf.py
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/surefoot bench

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

lock:
	$(call compile,requirements.lock,pyproject.toml)
	$(call compile,requirements-build.lock,-c requirements.lock --group build)
	$(call compile,requirements-dev.lock,-c requirements.lock -c requirements-build.lock --extra dev --extra control --group docs pyproject.toml)

$(READY): pyproject.toml requirements.lock requirements-build.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Surefoot needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(call install,$(LOCKED) -r requirements.lock -r requirements-build.lock)
	$(call install,--no-index --no-deps --no-build-isolation -e .)
	touch $(READY)

$(READY_DEV): $(READY) requirements-dev.lock
	$(call install,$(LOCKED) -r requirements-dev.lock)
	touch $(READY_DEV)

# uv is used where present, since it is faster; pip does the same.
define install
	@if command -v uv >/dev/null 2>&1; then \
	  uv pip install --quiet --python $(BIN)/python $(1) ; \
	else \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check $(1) ; \
	fi
endef

# Wheels of all platforms and of every Python from 3.11 on.
define compile
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
	  --custom-compile-command "make lock" -o $(1) $(2)
endef
