# `make report` makes the active experiment's report; `make test` runs every check. Both make .venv.
PYTHON ?= python3
BIN := .venv/bin
TORCH := 2.13.0
# uv does not read pip's find-links: pass on where wheels lie on this machine, if anywhere.
LINKS = $$($(BIN)/python -m pip config get global.find-links 2>/dev/null | sed 's/[^ ][^ ]*/--find-links &/g')

.PHONY: help env browser report test lint bench clean pins

help:
	@echo "make env      make .venv with the pinned requirements"
	@echo "make browser  install Chromium for the tests of the pages, where it is missing (as root)"
	@echo "make report   run the active experiments (params/active.yaml) and write reports/"
	@echo "make test     lint, types, tests"
	@echo "make lint     ruff, mypy, snakefmt, snakemake --lint, generated files"
	@echo "make bench    measure speed and memory against their targets; ONLY=name for one"
	@echo "make pins     resolve requirements.txt again from pyproject.toml"
	@echo "make clean    remove results, logs and caches; .venv and DVC's cache stay"

env: .venv/.made

.venv/.made: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "make env: $(PYTHON) is $$($(PYTHON) --version); use Python 3.11 to 3.13:" \
	    "make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python $(LINKS) -r requirements.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

report: env
	$(BIN)/snakemake --cores all
	$(BIN)/ocm index

# For the tests of the pages: a container has root and apt; elsewhere it is the user's to install.
browser:
	@for name in chromium chromium-browser google-chrome chrome; do \
	  command -v $$name >/dev/null && exit; done; \
	test "$$(id -u)" = 0 && export DEBIAN_FRONTEND=noninteractive && apt-get -qq update && \
	  apt-get -qq install -y --no-install-recommends chromium >/dev/null || \
	  echo "make browser: no Chromium here, so tests/browser is skipped: apt-get install chromium" >&2

# In the order of the files: by the number of tests, the few long ones of the pipeline would come last.
test: lint browser
	$(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

lint: env
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/python workflow/lint.py
	$(BIN)/ocm params --check

bench: env
	$(BIN)/python -m benchmarks $(ONLY)

clean:
	rm -rf artifacts logs .snakemake .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f reports/*.html

# Without local versions such as +cpu, so that any build of torch satisfies the pin.
pins:
	echo "torch==$(TORCH)" | $(BIN)/uv pip compile --quiet --extra dev --no-annotate --no-header \
	  --python-version 3.11 $(LINKS) --constraint - pyproject.toml | sed 's/+[a-z0-9.]*$$//' > .pins && mv .pins requirements.txt
