# Two commands do everything: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Only what is imported is compiled, when it is: that takes half the time.
PIP_OPTIONS := --quiet --no-compile --disable-pip-version-check
# ... and kept: the tests start hundreds of processes, each of which would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# Three test processes share two cores: threads that wait for each other do not spin.
export OMP_WAIT_POLICY := passive

.PHONY: demo test lint checks types imports unit slow bench reproduce docs build clean

demo: $(VENV)/.core
	$(BIN)/collegium demo

test: lint checks unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Types are checked by two processes. Another one compiles meanwhile what every test process would compile for itself.
checks: $(VENV)/.dev
	$(MAKE) --no-print-directory -j 2 types $(VENV)/.compiled imports

types: $(VENV)/.dev
	$(BIN)/mypy --num-workers 2

imports: $(VENV)/.dev
	$(BIN)/lint-imports

# The longest test takes half a minute, on a loaded machine two: one that hangs says where, and fails.
LIMITED := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

unit: $(VENV)/.dev
	$(BIN)/pytest -n 3 --dist loadgroup -m "not slow" $(LIMITED)

slow: $(VENV)/.dev
	$(BIN)/pytest -n 3 --dist loadgroup -m slow

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks --write

reproduce: $(VENV)/.dev
	$(BIN)/collegium reproduce --out docs/reproduction --page docs/reproduction.md $(REPRODUCE)

docs: $(VENV)/.docs
	$(BIN)/mkdocs build
	@echo "Open build/docs/index.html, or, for its search, run: $(BIN)/python -m http.server --directory build/docs"

build: $(VENV)/.build
	rm -rf dist
	$(BIN)/python -m build --quiet --outdir dist .
	$(BIN)/python .ci/check_package.py

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit("Collegium needs Python 3.11 or newer: set PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.made pyproject.toml constraints.txt
	$(BIN)/python -m pip install $(PIP_OPTIONS) -c constraints.txt -e .
	@touch $@

# pip fetches one package after the other: several of it share the list. What they cannot install, the last one does, or says why.
$(VENV)/.dev: $(VENV)/.made pyproject.toml constraints.txt
	-grep -v '#' constraints.txt | xargs -n 15 -P 3 $(BIN)/python -m pip install $(PIP_OPTIONS) --no-deps
	$(BIN)/python -m pip install $(PIP_OPTIONS) -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.core

$(VENV)/.compiled: $(VENV)/.dev
	$(BIN)/pytest --collect-only -qq > $(VENV)/collected.txt || { cat $(VENV)/collected.txt; exit 1; }
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	$(BIN)/python -m pip install $(PIP_OPTIONS) -c constraints.txt -e '.[docs]'
	@touch $@

$(VENV)/.build: $(VENV)/.made constraints.txt
	$(BIN)/python -m pip install $(PIP_OPTIONS) -c constraints.txt build
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
