# On a new machine with git, make and Python 3.11 or newer: `make demo` and `make test`.
# `make test-federation` starts Flower federations and Ray clusters on this machine: some minutes.
# `make docs` builds the site of the documentation into site/.
# `make fuzz SECONDS=60` feeds damaged input to every reader, so many seconds each.
# `make mutants NUMBER=100 SEED=1` asks how many small changes of the code the tests notice.

PYTHON ?= python3
BIN := .venv/bin
NUMBER ?= 300
SEED ?= 0
SECONDS ?= 60

.PHONY: demo test pytest test-federation lint docs mutants fuzz clean

demo: .venv/installed
	$(BIN)/fedmap demo

# side by side: tests wait for files and processes now and then
test: .venv/installed
	$(MAKE) --no-print-directory --jobs=2 lint pytest

pytest: .venv/installed
	$(BIN)/pytest -n 2 -q

test-federation: .venv/installed
	$(BIN)/pytest -q -n 4 --dist loadfile -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true tests/federation

lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

mutants: .venv/installed
	$(BIN)/python scripts/mutants.py --number $(NUMBER) --seed $(SEED)

fuzz: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fuzz]'
	$(BIN)/python scripts/fuzz.py --seconds $(SECONDS) --out runs/fuzz

# The constraints pin what is installed here; pyproject.toml has the ranges that fedmap works with.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedmap needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv
