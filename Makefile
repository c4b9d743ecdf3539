# make demo and make test do all the set-up; everything else here is for people who change the code.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo examples test test-slow test-page test-repeat check check-code check-docs check-history docs dist format benchmarks campaign certify vectors repro-check flower clean

VENV := .venv
BIN := $(VENV)/bin
PINS := constraints.txt
COMMA := ,

# The first interpreter that is new enough; override with make PYTHON=/path/to/python3.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then echo $$name; break; fi; done)

# One variable for one thread each: two test workers on two cores.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

# Bytecode is kept even where the shell says otherwise: two workers and the processes that tests
# start would each compile the package and the tests again.
export PYTHONDONTWRITEBYTECODE :=
# Whoever has nothing left to do takes over tests of the other worker.
PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal

help:
	@echo "make demo       install, then train, account and audit on real data; writes demo-report.html"
	@echo "make examples   run every script of examples/ and compare what it prints (under 5 minutes)"
	@echo "make test       install, then run the test suite (5 to 7 minutes on 2 idle cores)"
	@echo "make test-slow  the statistical tests and other long ones"
	@echo "make test-page  the page of fedprivacy page in a browser (needs /usr/bin/chromium; a minute)"
	@echo "make test-repeat  the tests of make test RUNS times: other orders, 1, 2, 4 workers, load (hours)"
	@echo "make check      formatter, linter, strict type checker, docs build without warnings (under 5 minutes)"
	@echo "make docs       build the documentation into docs/_build/html"
	@echo "make dist       wheel and sdist, installed without torch and with it, and tried"
	@echo "make benchmarks time and width beside other libraries (a quarter of an hour)"
	@echo "make campaign   random settings looked through for contradictions (5 minutes, goes on each time)"
	@echo "make certify    200 random bounds proved again in ball arithmetic, by a program of its own"
	@echo "make vectors    our accountant on every test vector (under 3 minutes)"
	@echo "make repro-check  rerun the smallest cell of every paper's results and compare"
	@echo "make flower     a private app on Flower's Ray engine, in an environment of its own, and its audit"
	@echo "make format     let the formatter and the linter mend what they can"
	@echo "make clean      remove everything that was built, $(VENV) too"

$(BIN)/pip:
	@test -n "$(PYTHON)" && "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "fedprivacy needs Python 3.11 or newer, found: $$(python3 --version 2>&1)." \
			"Install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Creating $(VENV) with $$("$(PYTHON)" --version) ..."
	@"$(PYTHON)" -m venv $(VENV) || { \
		echo "python -m venv failed; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

# One stamp for each set of extras. Editable: a change in the source needs no new install.
# The pins always apply, so torch is never installed in any other version.
define install
	@echo "Installing fedprivacy[$(1)] (some minutes the first time: torch is large) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(PINS) -e '.[$(1)]'
	@touch $@
endef

$(VENV)/.has-train: pyproject.toml $(PINS) | $(BIN)/pip
	$(call install,train)

$(VENV)/.has-test: pyproject.toml $(PINS) | $(BIN)/pip
	$(call install,train$(COMMA)test)

$(VENV)/.has-browser: pyproject.toml $(PINS) | $(BIN)/pip
	$(call install,train$(COMMA)browser)

$(VENV)/.has-check: pyproject.toml $(PINS) | $(BIN)/pip
	$(call install,train$(COMMA)test$(COMMA)check$(COMMA)docs)

$(VENV)/.has-benchmarks: pyproject.toml $(PINS) | $(BIN)/pip
	$(call install,train$(COMMA)benchmarks)

demo: $(VENV)/.has-train
	@$(BIN)/fedprivacy demo

examples: $(VENV)/.has-test $(VENV)/.has-check
	$(ONE_THREAD) $(BIN)/python -m pytest -v tests/test_examples.py

test: $(VENV)/.has-test
	$(PYTEST) -m "not slow" --durations=15

test-slow: $(VENV)/.has-test
	$(PYTEST) -m slow

test-page: $(VENV)/.has-browser
	$(ONE_THREAD) $(BIN)/python -m pytest -v tests/contract/test_page.py

# TESTS holds options of pytest and of tests/repeat.py: make test-repeat RUNS=3 TESTS="-k ledger".
RUNS ?= 30
TESTS ?=
test-repeat: $(VENV)/.has-test
	$(BIN)/python tests/repeat.py --runs $(RUNS) $(TESTS)

# The code and the pages are looked at side by side.
check: $(VENV)/.has-check
	@$(MAKE) --no-print-directory --jobs=2 --keep-going check-code check-docs check-history

check-code: $(VENV)/.has-check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --strict tests/turned_bounds.py

check-docs: $(VENV)/.has-check
	$(BIN)/sphinx-build -q -j 2 -W --keep-going -b html docs docs/_build/html
	$(BIN)/python docs/_ext/links.py docs/_build/html

# Subjects of commits since this one have at most 72 characters. Without git there is no history.
HISTORY_SINCE := 49f03f22
check-history:
	@git rev-parse --quiet --verify $(HISTORY_SINCE) >/dev/null 2>&1 || exit 0; \
		git log --no-merges --format=%s $(HISTORY_SINCE)..HEAD | \
		awk 'length > 72 { print "commit subject of more than 72 characters: " $$0; bad = 1 } \
			END { exit bad }'

benchmarks: $(VENV)/.has-benchmarks
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/checks.py
	$(ONE_THREAD) $(BIN)/python benchmarks/training.py

# CAMPAIGN holds its options; see docs/theory/campaign.md.
CAMPAIGN ?=
campaign: $(VENV)/.has-test
	$(ONE_THREAD) $(BIN)/python benchmarks/campaign.py $(CAMPAIGN)

certify: $(VENV)/.has-test
	$(ONE_THREAD) $(BIN)/python benchmarks/certify.py

vectors: $(VENV)/.has-test
	$(ONE_THREAD) $(BIN)/python benchmarks/vectors.py check

# Every script of benchmarks/papers that has a --check; all are run, one failure is enough.
repro-check: $(VENV)/.has-train
	@failed=0; for script in $$(grep -l -- '"--check"' benchmarks/papers/*.py); do \
		echo "$$script --check"; $(ONE_THREAD) $(BIN)/python "$$script" --check || failed=1; \
	done; exit $$failed

# An environment of its own: what flwr pins must not choose the versions of everything else.
FLOWER := .venv-flower
FLOWER_OUT := $(CURDIR)/flower-out
$(FLOWER)/.has-flower: pyproject.toml $(PINS)
	@"$(PYTHON)" -m venv $(FLOWER)
	@$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check -c $(PINS) -e '.[flower]'
	@touch $@

# A fresh folder each time: a ledger whose run is complete is closed. Flower leaves a local server
# running, which would keep the environment that it was started in. The brackets keep the pattern
# from finding the shell that looks for it.
flower: $(FLOWER)/.has-flower
	@rm -rf $(FLOWER_OUT) && mkdir $(FLOWER_OUT)
	cd examples/flower && PATH="$(CURDIR)/$(FLOWER)/bin:$$PATH" FLWR_HOME=$(FLOWER_OUT)/flwr \
		FLWR_TELEMETRY_ENABLED=0 flwr run . --stream \
		--run-config "folder='$(FLOWER_OUT)'" --federation-config "num-supernodes=60"
	@left=$$(pgrep -f "[f]lower-superlink .*$(FLOWER_OUT)/flwr/"); test -z "$$left" || kill $$left
	$(FLOWER)/bin/fedprivacy audit $(FLOWER_OUT)/run.jsonl --strict

docs: $(VENV)/.has-check
	$(BIN)/sphinx-build -q -j 2 -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# The wheel where there is no torch, the sdist with it: both in environments that hold nothing else.
dist: $(BIN)/pip
	@rm -rf dist build/plain build/torch
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(PINS) 'build>=1.2'
	$(BIN)/python -m build --outdir dist .
	@"$(PYTHON)" -m venv build/plain && "$(PYTHON)" -m venv build/torch
	@build/plain/bin/python -I -m pip install --quiet --disable-pip-version-check -c $(PINS) dist/*.whl
	cd build/plain && bin/python -I ../../tests/smoke.py
	cd build/plain && bin/python -I ../../tests/light_core.py
	@build/torch/bin/python -I -m pip install --quiet --disable-pip-version-check -c $(PINS) \
		"fedprivacy[train] @ file://$$(ls $(CURDIR)/dist/*.tar.gz)"
	cd build/torch && $(ONE_THREAD) bin/python -I ../../tests/smoke.py --train
	@echo "dist/ holds what was tried"

format: $(VENV)/.has-check
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(FLOWER) flower-out build dist *.egg-info docs/_build docs/_generated docs/notebooks docs/reference/generated demo-out demo-report*
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
