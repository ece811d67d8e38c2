# `make report` makes the reports of the active experiments; `make test` checks. Both make .venv.
PYTHON ?= python3
# Hundreds of short processes run this code: let the first one compile it for the others.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin
TORCH := 2.13.0
# uv does not read pip's find-links: pass on where wheels lie on this machine, if anywhere.
LINKS = $$($(BIN)/python -m pip config get global.find-links 2>/dev/null | sed 's/[^ ][^ ]*/--find-links &/g')
INSTALL = $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python $(LINKS)
PYTEST = $(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder --durations 25
# Names what was found in place of a Python that will do, and one that will, if it is on the PATH.
define CHECK_PYTHON
found=$$($(PYTHON) --version 2>&1) || found="no such command"; \
case "$$found" in "Python 3.11."*|"Python 3.12."*|"Python 3.13."*) ;; *) \
  for name in python3.13 python3.11 python3.12; do $$name --version >/dev/null 2>&1 && break; done; \
  echo "make env: $(PYTHON): $$found; Python 3.11 to 3.13 is needed, say:" \
    "make PYTHON=$$name $(MAKECMDGOALS)" >&2; exit 1;; esac
endef

.PHONY: help env browser report site pictures test test-all lint bench rehearse chaos cluster clean pins

help:
	@echo "make env      make .venv for development; make report installs only what runs"
	@echo "make browser  install Chromium for the tests of the pages, where it is missing (as root)"
	@echo "make report   run the active experiments (params/active.yaml) and write reports/"
	@echo "make site     the documentation and all reports as site/index.html, links checked"
	@echo "make pictures the README's pictures, from the reports (needs a browser)"
	@echo "make test     lint, types, tests; make test-all also the slow ones"
	@echo "make lint     ruff, mypy, snakefmt, snakemake --lint"
	@echo "make bench    measure speed and memory against their targets; ONLY=name for one"
	@echo "make rehearse the paper's experiments with random networks of full size; ONLY=name for one"
	@echo "make chaos    kills, flips and damaged inputs, counted"
	@echo "make cluster  SLURM with two nodes on this host (as root, with apt): killed, cancelled, shared jobs"
	@echo "make pins     resolve requirements*.txt again from pyproject.toml, with hashes"
	@echo "make clean    remove results, logs and caches; .venv and DVC's cache stay"

# The environment that runs experiments, and the one that also tests, lints and documents. The lock
# files are whole but for torchvision, which clean-fid names and what we use of it does not need.
env: .venv/.dev

.venv/.run: requirements.txt pyproject.toml
	@test -x $(BIN)/python || { $(CHECK_PYTHON); }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet uv
	$(INSTALL) --no-deps -r requirements.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	@$(BIN)/python -c "from diffusers import UNet2DModel" || { echo "make env: diffusers does not" \
	  "import; remove .venv (an earlier environment may have left a package that does not fit" \
	  "torch, such as torchvision) and run make again" >&2; exit 1; }
	@touch $@

.venv/.dev: .venv/.run requirements-dev.txt
	$(INSTALL) --no-deps -r requirements-dev.txt
	@touch $@

report: .venv/.run
	$(BIN)/snakemake --cores all
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
	$(PYTEST) -m "not slow"

test-all: test
	$(PYTEST) -m slow

lint: env
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/python workflow/lint.py

bench: env
	$(BIN)/python -m benchmarks $(ONLY)

# An hour on two cores, and 10 GB of disk; no weights or images are needed.
rehearse: env
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m benchmarks.rehearsal $(ONLY)

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

pins: COMPILE = $(BIN)/uv pip compile --quiet --extra slurm --extra text --no-annotate --no-header \
  --generate-hashes --no-emit-package torchvision --python-version 3.11 $(LINKS) pyproject.toml
pins:
	echo "torch==$(TORCH)" | $(COMPILE) --extra dev --constraint - > .resolved
	awk -f workflow/pins.awk .resolved > .pins
	$(COMPILE) --constraint .pins > .resolved
	awk -f workflow/pins.awk .resolved > requirements.txt
	{ echo "-r requirements.txt"; grep -vxFf requirements.txt .pins; } > requirements-dev.txt
	rm .pins .resolved
