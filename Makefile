# Everything here needs Python 3.11 or newer and make. The first run installs into $(VENV); later ones need no network.
#
#   make demo                 the example shop, with worker, mail server and first customers; Ctrl-C stops it
#   make screenshots SITE=http://127.0.0.1:8000 PASSWORD=...   pictures for the docs, of a demo that runs
#   make demo ONCE=1          the same, checked: ends when all is done, with exit code 0 if every figure is right
#   make test                 linters, types, tests
#   make foreign PYTHON=python3.13 DJANGO=6.1 VENV=.venv-313   packages of others, from PyPI, with this one
#   make soak MINUTES=10      workers in all kinds of faults, then a comparison of what ran with what the queue says
#   make cluster              two primaries with standbys, which die while the example shop sells; QUICK=1: in half a minute
#   make bench QUICK=1        all benchmarks, at sizes that show only that they work
#   make pytest N=0           the tests in one process; auto, the default: in two for each core
#   make pytest TESTS=tests/test_x.py
#   make pytest SEED=7        shuffled, by that seed; what fails says how to repeat it: make pytest SEED=7 GROUP=2/6
#   make pytest GUARD=1       with a check, after each module, for what its tests have left behind
#   make test DJANGO=6.1 PYTHON=python3.13 VENV=.venv-313
#   make test CONSTRAINTS=    in a new environment with the newest versions, in place of those of .ci/constraints.txt

# Those with ?= may also be set in the environment; the others have names that are used there for something else.
VENV ?= .venv
DJANGO =
ONCE ?=
QUICK =
N = auto
TESTS =
MINUTES = 10
SITE = http://127.0.0.1:8000
PASSWORD =
SEED ?=
GROUP =
GUARD ?=
# The versions that .ci/run has passed with, so that a new one of a linter fails nothing here; CONSTRAINTS=: the newest.
CONSTRAINTS ?= $(if $(DJANGO),,$(wildcard .ci/constraints.txt))

CHECK := import sys; sys.exit(sys.version_info < (3, 11))
# Of several, one that .ci/run tests with.
TESTED := import ensurepip, ssl, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for check in '$(TESTED)' '$(CHECK)'; do \
	for python in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$python -c "$$check" 2>/dev/null && echo $$python && exit; done; done; echo python3)

BIN := $(VENV)/bin
# Errors only: pip warns of every index that it is configured to ask and does not reach.
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
# Where one of the constraints wants a newer Python than this one, the newest that it can have, unless they were given.
OTHERWISE = $(if $(filter file,$(origin CONSTRAINTS)),2>/dev/null || { \
	echo "Not all versions of $(CONSTRAINTS) can be had here: taking the newest ..."; $(PIP) install $(1); })
install = { $(PIP) install $(1) $(if $(CONSTRAINTS),-c $(CONSTRAINTS) $(OTHERWISE)); }
INSTALLED := $(VENV)/.installed$(if $(DJANGO),-django-$(DJANGO))
# Hundreds of processes are started by the tests: none is to compile the code again, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

yes = $(if $(filter-out 0 no false,$(1)),$(2))
given = $(if $(filter command environment,$(word 1,$(origin $(1)))),$(1)=$($(1)))

# What shells, editors and CI services set for other programs: here all goes without, so that it is the same everywhere.
# What these tests read themselves stays, as PGSERVER_POSTGRES_VERSION, and what make is told, as by make pytest DATABASE_URL=...
SET_FOR_OTHERS := DATABASE_URL NOTIFY_SOCKET NODE_OPTIONS FORCE_COLOR NO_COLOR PY_COLORS CLICOLOR CLICOLOR_FORCE COLUMNS LINES LANGUAGE \
	BASH_ENV PROMPT_COMMAND CDPATH PIP_USER PIP_TARGET PIP_PREFIX \
	$(filter LC_% DJANGO_% OTEL_% SENTRY_% PROMETHEUS_% PYTEST_% PYTHON% PG%,$(filter-out \
	PYTHON PYTHONHASHSEED PYTHONDONTWRITEBYTECODE PGSERVER_% PGQUEUE PGBOUNCER,$(.VARIABLES)))
FOR_OTHERS := $(foreach name,$(SET_FOR_OTHERS),$(if $(filter command,$(origin $(name)))$(findstring .,$(name)),,$(name)))
# A locale that ssh has brought along, and that is not installed here, ends initdb.
LOCALE := $(if $(filter Linux,$(shell uname)),LC_ALL=C.UTF-8)
ANYWHERE := unset $(FOR_OTHERS); umask 022; export $(LOCALE) no_proxy="$${no_proxy:-$${NO_PROXY:-}}"; \
	if [ "$$no_proxy" != '*' ]; then no_proxy="$$no_proxy,127.0.0.1,localhost"; fi

# What is done and how long it has taken: $(call timed,What,command)
timed = @$(ANYWHERE); started=$$(date +%s); echo "$(1) ..." && $(2) && echo "$(1): $$(($$(date +%s) - started)) s"

# One group of modules for each process, the same ones each time: tests/support/groups.py.
PYTEST = $(BIN)/python -m pytest -q --dist each --max-worker-restart=0 $(if $(GROUP),--group $(GROUP),-n $(N)) $(call yes,$(GUARD),--guard) \
	$(if $(SEED),-p randomly --randomly-seed=$(SEED) --hypothesis-seed=$(SEED))
# For the command that repeats what has failed.
export MADE_WITH := $(strip $(call given,PYTHON) $(call given,DJANGO) $(call given,VENV) $(call given,GUARD))
export TESTS_GIVEN := $(TESTS)

CODE := django_pgqueue pytest_django_pgqueue.py tests example_project benchmarks docs

.DEFAULT_GOAL := help
.PHONY: help install demo screenshots test pytest weights foreign soak cluster docs linkcheck reference messages bench lint types clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: $(INSTALLED) ## Make the virtual environment, unless it is up to date

demo: $(INSTALLED) ## Run the example shop; ONCE=1: only until the first work is done and checked
	@$(LOCALE) $(BIN)/python example_project/manage.py demo $(call yes,$(ONCE),--once)

screenshots: $(INSTALLED) ## Take the pictures of docs/how-to/admin.md; SITE=... PASSWORD=... of a demo that runs
	@$(BIN)/python docs/screenshots.py --site="$(SITE)" --password="$(PASSWORD)"

test: lint types pytest ## Run linters, types and tests

# The order of sets is part of a run that is repeated.
pytest weights: export PYTHONHASHSEED := $(or $(SEED),0)

pytest: $(INSTALLED) ## Run the tests alone; TESTS=..., SEED=..., GROUP=..., GUARD=1, N=...
	$(call timed,Tests,$(PYTEST) $(TESTS))

weights: $(INSTALLED) ## Measure how long each module of tests takes; the groups are balanced by it
	$(call timed,Weights,$(PYTEST) --write-weights)

foreign: export FOREIGN := 1
foreign: N = 5
foreign: export TESTS_GIVEN := tests/foreign
foreign: TESTS = tests/foreign
foreign: $(INSTALLED) ## Run packages from PyPI with this one; needs Python 3.12, a package index, and Chromium
	$(call timed,Packages of others,$(PYTEST) $(TESTS))

soak: $(INSTALLED) ## Let everything go wrong for MINUTES=10; SEED=... as in an earlier one
	$(BIN)/python -m tests.chaos.outbox $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

cluster: $(INSTALLED) ## Kill two primaries with standbys while the example shop sells; QUICK=1: in half a minute
	$(BIN)/python -m tests.chaos.shop $(call yes,$(QUICK),--seconds 2)

lint: $(INSTALLED) ## Check style, format and prose
	$(call timed,Linters,$(BIN)/ruff check --quiet $(CODE) && $(BIN)/ruff format --quiet --check $(CODE) && $(BIN)/python -m tests.prose --check)

types: $(INSTALLED) ## Check types, and those that others see
	$(call timed,Types,DATABASE_URL=postgresql:///none $(BIN)/mypy --no-error-summary && $(BIN)/python -m tests.typechecks)

docs: $(INSTALLED) ## Build the documentation, warnings as errors
	$(BIN)/python -m sphinx -q -W --keep-going docs docs/_build/html

linkcheck: $(INSTALLED) ## Look up every external link of the documentation; needs the network
	$(BIN)/python -m sphinx -q -b linkcheck docs docs/_build/linkcheck

reference: $(INSTALLED) ## Write the tables of docs/reference that come from the code
	@$(BIN)/python -m docs.generate

messages: $(INSTALLED) ## Bring the translations up to date with the words in the code, and compile them
	@$(BIN)/python -m tests.messages

bench: $(INSTALLED) ## Measure all that is promised about speed, in about an hour; QUICK=1: see that it works
	$(BIN)/python -m benchmarks $(call yes,$(QUICK),--quick)

clean: ## Remove what was built, and the data of demo and tests
	rm -rf $(VENV) build dist docs/_build .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .postgres .foreign .soak example_project/var
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# The build backend is installed first and used without isolation: what is there already is then not asked for again.
$(INSTALLED): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c '$(CHECK)' || { echo "django-pgqueue needs Python 3.11 or newer; $(PYTHON) is" \
		"$$($(PYTHON) --version 2>&1 | head -n 1). Say which one to use: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(call timed,Installing into $(VENV),{ $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV); } && \
		$(call install,hatchling hatch-fancy-pypi-readme editables) && \
		$(call install,--no-build-isolation -e ".[dev]" $(if $(DJANGO),"django~=$(DJANGO).0")))
	@rm -f $(VENV)/.installed*
	@touch $@
