# `make report` makes the active experiment's report; `make test` runs every check. Both make .venv.
PYTHON ?= python3
# Hundreds of short processes run this code: let the first one compile it for the others.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin
TORCH := 2.13.0
# uv does not read pip's find-links: pass on where wheels lie on this machine, if anywhere.
LINKS = $$($(BIN)/python -m pip config get global.find-links 2>/dev/null | sed 's/[^ ][^ ]*/--find-links &/g')
# Names what was found in place of a Python that will do, and one that will, if it is on the PATH.
define CHECK_PYTHON
found=$$($(PYTHON) --version 2>&1) || found="no such command"; \
case "$$found" in "Python 3.11."*|"Python 3.12."*|"Python 3.13."*) ;; *) \
  for name in python3.13 python3.11 python3.12; do $$name --version >/dev/null 2>&1 && break; done; \
  echo "make env: $(PYTHON): $$found; Python 3.11 to 3.13 is needed, say:" \
    "make PYTHON=$$name $(MAKECMDGOALS)" >&2; exit 1;; esac
endef

.PHONY: help env browser report site pictures test lint bench chaos cluster clean pins

help:
	@echo "make env      make .venv with the pinned requirements"
	@echo "make browser  install Chromium for the tests of the pages, where it is missing (as root)"
	@echo "make report   run the active experiments (params/active.yaml) and write reports/"
	@echo "make site     the documentation and the kept reports as site/index.html, links checked"
	@echo "make pictures the README's pictures, from the kept reports (needs a browser)"
	@echo "make test     lint, types, tests"
	@echo "make lint     ruff, mypy, snakefmt, snakemake --lint, generated files"
	@echo "make bench    measure speed and memory against their targets; ONLY=name for one"
	@echo "make chaos    kills, flips, races and damaged inputs; writes docs/reliability.md"
	@echo "make cluster  SLURM with two nodes on this host (as root, with apt): killed, cancelled, shared jobs"
	@echo "make pins     resolve requirements.txt again from pyproject.toml, with hashes"
	@echo "make clean    remove results, logs and caches; .venv and DVC's cache stay"

env: .venv/.made

.venv/.made: requirements.txt pyproject.toml
	@test -x $(BIN)/python || { $(CHECK_PYTHON); }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python $(LINKS) -r requirements.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

report: env
	$(BIN)/snakemake --cores all
	$(BIN)/ocm sync
	$(BIN)/ocm keep
	$(BIN)/ocm index

site: env
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python workflow/site/links.py site
	@echo "open site/index.html"

pictures: env browser
	$(BIN)/python workflow/site/pictures.py

# For the tests of the pages: a container has root and apt; elsewhere it is the user's to install.
browser:
	@for name in chromium chromium-browser google-chrome chrome; do \
	  command -v $$name >/dev/null && exit; done; \
	test "$$(id -u)" = 0 && export DEBIAN_FRONTEND=noninteractive && apt-get -qq update && \
	  apt-get -qq install -y --no-install-recommends chromium >/dev/null || \
	  echo "make browser: no Chromium here, so tests/browser is skipped: apt-get install chromium" >&2

# In the order of tests/conftest.py, not of the number of tests in a file. A third worker, as many tests wait.
test: lint browser
	$(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder --durations 25

lint: env
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/python workflow/lint.py
	$(BIN)/ocm params --check

bench: env
	$(BIN)/python -m benchmarks $(ONLY)

# Some ten minutes; the same attacks each time, a short form of which is part of `make test`.
chaos: env
	rm -f .chaos/counts.jsonl
	CAMPAIGN=full $(BIN)/pytest tests/chaos --numprocesses 2; code=$$?; \
	  $(BIN)/python -m tests.chaos && exit $$code

# As root, with apt, some six minutes; elsewhere it is skipped, and `-rs` says in a line why.
cluster: env
	OCM_CLUSTER=1 $(BIN)/pytest tests/cluster -rs

clean:
	rm -rf artifacts logs site .snakemake .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f reports/*.html

pins:
	echo "torch==$(TORCH)" | $(BIN)/uv pip compile --quiet --extra dev --no-annotate --no-header \
	  --generate-hashes --python-version 3.11 $(LINKS) --constraint - pyproject.toml > .resolved
	awk -f workflow/pins.awk .resolved > .pins && mv .pins requirements.txt && rm .resolved
