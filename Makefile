# What people and CI type. Each goal does its own set-up: Python >= 3.11, make and a package index are enough.
#   make run [INPUT=file] [ARGS=...]   the demo: a broker, a group of Spark applications, a kill, a verdict
#   make test [ARGS=...]               the whole suite
#   make long [ARGS=...]               what the suite leaves out: minutes of simulation
#   make check                         format, lint, types (tests and bench too), layers, fast tests: under two minutes
#   make fuzz [SECONDS=N] [ARGS=...]   every fuzz target for N seconds (30), guided by coverage
#   make bench [ARGS=...]              the measurements; ARGS='--json FILE' keeps them for a comparison
#   make screenshots                   the pictures of pages in docs, by a headless Chromium: a minute and a half
#   make setup | format | docs | clean environment only | house format | generated pages | drop the environment
# PYTHON=/path/to/python3.12 chooses the interpreter; VENV=dir another place for the environment.

VENV ?= .venv
PY := $(VENV)/bin/python
EXTRAS := arrow,spark,uvloop,dev
# The stamp carries the checkout's place, since an editable install points at it.
STAMP := $(VENV)/ready-$(shell pwd -P | cksum | cut -d' ' -f1)
CLASSES := $(VENV)/spark-classes.jsa
CANDIDATES := $(if $(PYTHON),$(PYTHON),python3 python3.13 python3.12 python3.11 python)

# Compiled tests are kept even where the shell says not to: else each process compiles all it imports.
test check fast-checks fast-tests long: export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup run test long check fast-checks fast-tests fuzz bench format docs screenshots clean
help:
	@sed -n 's/^#   //p' Makefile

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@set -e; \
	if ! $(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  found=''; \
	  for name in $(CANDIDATES); do \
	    if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found=$$name; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "kohort needs Python 3.11 or newer; none among: $(CANDIDATES). Install one or say make PYTHON=/path/to/python3.11" >&2; exit 1; \
	  fi; \
	  echo "Making $(VENV) with $$($$found -V) (about 1.2 GB, a few minutes, once)"; \
	  $$found -m venv "$(VENV)" >/dev/null 2>&1 \
	    || { $$found -m venv --without-pip "$(VENV)" && $$found -m pip --python "$(PY)" install -q pip; } >/dev/null 2>&1 \
	    || { rm -rf "$(VENV)"; echo "$$found cannot make an environment; install its venv part (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }; \
	fi
	@# setuptools first and no build isolation: later set-ups then need no package index.
	@$(PY) -m pip install -q --disable-pip-version-check $(PIP_ARGS) -c constraints.txt setuptools
	@$(PY) -m pip install -q --disable-pip-version-check --no-build-isolation $(PIP_ARGS) -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

run: $(STAMP)
	@$(VENV)/bin/kohort demo $(if $(INPUT),--input '$(INPUT)') $(ARGS)

test: $(STAMP) $(CLASSES)
	@$(PY) -m pytest $(ARGS)

# The suite starts Spark dozens of times; with this archive a start costs half the CPU time.
$(CLASSES): $(STAMP)
	@$(PY) -m tests.class_archive $@ >/dev/null 2>&1 || echo 'no archive of Spark classes: the tests run without it' >&2

# Both at a time, since the fast tests wait for a third of their time. Beside them mypy has one process: its workers give
# up if they are not served within seconds.
check: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 fast-checks fast-tests

fast-checks:
	@$(PY) -m ruff format --check
	@$(PY) -m ruff check
	@$(PY) -m mypy
	@$(VENV)/bin/lint-imports

fast-tests:
	@HYPOTHESIS_PROFILE=$(or $(HYPOTHESIS_PROFILE),quick) $(PY) -m pytest -q -n 6 --dist loadfile -m 'not slow and not long' $(ARGS)

long: $(STAMP)
	@$(PY) -m pytest -m long $(ARGS)

fuzz: $(STAMP)
	@$(PY) -m pip install -q --disable-pip-version-check --no-build-isolation -c constraints.txt -e '.[fuzz]'
	@$(PY) -m tests.fuzz --seconds $(or $(SECONDS),30) $(ARGS)

bench: $(STAMP)
	@$(PY) -m bench $(ARGS)

format: $(STAMP)
	@$(PY) -m ruff format
	@$(PY) -m ruff check --fix

docs: $(STAMP)
	@$(PY) -m tests.tidy.pages

screenshots: $(STAMP)
	@$(PY) -m tests.tidy.screenshots

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache out
