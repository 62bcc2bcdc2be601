# make demo    a real Wikipedia dump in, a trained packed BERT out
# make test    the test suite; make test-all adds the long cases
# make lint    style and types
# Each makes its own virtual environment first. PYTHON=python3.8 chooses another interpreter, with an
# environment of its own.

SHELL := /bin/sh
RUNS := -c "import sys, venv, ssl; sys.exit(sys.version_info < (3, 8))"
ifeq ($(origin PYTHON), undefined)
  CANDIDATES := python3 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8 python
  PYTHON := $(shell for p in $(CANDIDATES); do "$$p" $(RUNS) >/dev/null 2>&1 && echo "$$p" && break; done)
  VENV := .venv
else
  VENV := .venv-$(shell "$(PYTHON)" -c "import sys; print('%d.%d' % sys.version_info[:2])" 2>/dev/null)
endif
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
LINTERS := $(shell sed -n 's/^ *"\(\(ruff\|basedpyright\)==[^;]*\);.*/\1/p' pyproject.toml)

.PHONY: demo test test-all lint format env clean

demo: $(VENV)/.installed
	$(PY) demo.py

test: $(VENV)/.installed
	$(PY) -m pytest -q -m "not slow"

test-all: $(VENV)/.installed
	$(PY) -m pytest -q

lint: $(VENV)/.linters
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m basedpyright --pythonpath $(PY)

format: $(VENV)/.linters
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

env: $(VENV)/.installed

# The stamp is written last: an installation that was broken off is done again.
$(VENV)/.installed: requirements.txt
	@"$(PYTHON)" $(RUNS) || { echo "no Python 3.8 or newer that runs: PYTHON='$(PYTHON)'" >&2; exit 2; }
	"$(PYTHON)" -m venv --clear $(VENV)
	$(PIP) install -r requirements.txt
	@touch $@

$(VENV)/.linters: $(VENV)/.installed pyproject.toml
	$(PIP) install $(LINTERS)
	@touch $@

clean:
	rm -rf .venv .venv-* out
