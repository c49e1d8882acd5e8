# `make demo` and `make test` each work as the first command on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest
MINUTES ?= 10
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt

.PHONY: help setup everything demo programs test test-slow kernels lint build oldest docs screenshots fuzz bench bench-privacy bench-secagg bench-flower bench-local bench-page studies study-coverage study-calibrators study-vertical study-two-rounds trace clean

help:
	@echo "make demo   evaluate a model over five generated hospitals"
	@echo "make test   run the tests"
	@echo "make test-slow  more seeds and cells of long statistics"
	@echo "make kernels  some tests under the kernels of old and of usual processors"
	@echo "make setup  install everything for development into $(VENV)"
	@echo "make lint   ruff, mypy --strict, import-linter"
	@echo "make build  source distribution and wheel into dist/, checked and tried"
	@echo "make oldest  a short test on the oldest dependencies that pyproject.toml allows"
	@echo "make docs   the documentation site into docs/_build, its links checked"
	@echo "make trace  how many files and functions run in what users do most"
	@echo "make screenshots  the pictures of the report in README, from the demo"
	@echo "make bench  speed and memory against named peers, and error against a paper's code"
	@echo "make fuzz   wrong inputs to all that reads what others wrote, guided by coverage (MINUTES=10)"
	@echo "make bench-secagg  time and bytes of a secure sum, next to Flower's SecAgg+ where installed"
	@echo "make bench-local  time and error of local reports (10 minutes)"
	@echo "make bench-page  time and bytes of a large report, and how soon it answers in Chromium"
	@echo "make bench-flower  seconds per evaluation in Flower's simulation"
	@echo "make bench-privacy  noise, error and planning under differential privacy (20 minutes)"
	@echo "make studies  measured errors and slopes next to the bounds of the papers (4 minutes of a core)"
	@echo "make study-coverage  how often intervals hold the truth (two hours of a core; goes on where it was stopped)"
	@echo "make study-calibrators  fitted maps on real scores and against a known truth (4 minutes of a core)"
	@echo "make study-two-rounds  bins that a first round finds, next to true quantiles and one round (25 minutes of a core)"
	@echo "make study-vertical  the tables and figures of Sun et al. 2022, labels and scores apart (10 minutes of a core)"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fedgauge needs Python 3.11 or later: run make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "Python's venv module is missing: install the package python3-venv (Debian, Ubuntu) and run make again"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing fedgauge into $(VENV) (once)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.demo
	@echo "Installing the test tools into $(VENV) (once)"
	@$(PIP) --editable '.[test]'
	@touch $@

$(VENV)/.fuzz: $(VENV)/.test
	@echo "Installing the fuzzer into $(VENV) (once)"
	@$(PIP) --editable '.[fuzz]'
	@touch $@

$(VENV)/.docs: $(VENV)/.demo
	@echo "Installing what the documentation needs into $(VENV) (once)"
	@$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.build: $(BIN)/python constraints.txt
	@echo "Installing the build tools into $(VENV) (once)"
	@$(PIP) build hatchling twine
	@touch $@

$(OLDEST)/.ready: $(BIN)/python pyproject.toml constraints.txt tools/oldest.py
	@echo "Installing the oldest dependencies into $(OLDEST) (once)"
	@rm -rf $(OLDEST)
	@$(BIN)/python -m venv --without-pip $(OLDEST)
	@$(BIN)/python tools/oldest.py > $(OLDEST)/constraints.txt
	@$(BIN)/python -m pip --python $(OLDEST)/bin/python --disable-pip-version-check --quiet \
		install --no-compile --constraint $(OLDEST)/constraints.txt --editable '.[privacy]'
	@touch $@

# Programs that some tests run.
programs:
	@sh tools/programs.sh

setup: $(VENV)/.test programs

demo: $(VENV)/.demo
	@$(BIN)/fedgauge demo
	@echo "The command is $(BIN)/fedgauge; '. $(BIN)/activate' puts it on the path of this shell"

test: $(VENV)/.test programs
	@$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

test-slow: $(VENV)/.test
	@$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m slow tests

# Processors choose the kernels of BLAS, which differ in the last digits of what they compute.
kernels: kernel-Prescott kernel-Haswell

kernel-%: $(VENV)/.test
	@echo "OPENBLAS_CORETYPE=$*"
	@OPENBLAS_CORETYPE=$* $(BIN)/python -m pytest -p no:cacheprovider tests/unit/test_kept_results.py tests/oracle/test_areas.py tests/oracle/test_calibration.py tests/oracle/test_pchip.py

# What .ci/run needs, with one resolution; the steps below may then run side by side.
everything: $(VENV)/.everything programs

$(VENV)/.everything: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing fedgauge and the tools for tests, documentation and builds into $(VENV) (once)"
	@$(PIP) --editable '.[test,docs]' build hatchling twine
	@for stamp in .demo .test .docs .build .everything; do touch $(VENV)/$$stamp; done

lint: $(VENV)/.test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

build: $(VENV)/.build
	@$(BIN)/python tools/check_build.py

oldest: $(OLDEST)/.ready
	@$(OLDEST)/bin/python tools/smoke.py tests/fixtures

docs: $(VENV)/.docs
	@rm -rf docs/_build docs/api docs/auto_examples
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet docs docs/_build
	@$(BIN)/python tools/check_site.py docs/_build
	@echo "Open docs/_build/index.html"

trace: $(VENV)/.test
	@$(BIN)/python tools/trace.py

screenshots: $(VENV)/.test programs
	@$(BIN)/python tools/screenshots.py

fuzz: $(VENV)/.fuzz
	@$(BIN)/python tests/fuzz/run.py --seconds $$(( $(MINUTES) * 60 ))

bench: $(VENV)/.test
	@$(BIN)/python benchmarks/speed.py
	@$(BIN)/python benchmarks/memory.py
	@$(BIN)/python benchmarks/startup.py
	@$(BIN)/python benchmarks/area_error.py
	@$(BIN)/python benchmarks/small_cells.py
	@$(BIN)/python benchmarks/vertical.py
	@$(BIN)/python benchmarks/slices.py
	@$(BIN)/python benchmarks/sources.py

bench-privacy: $(VENV)/.test
	@$(BIN)/python benchmarks/noise.py
	@$(BIN)/python benchmarks/ddp_error.py
	@$(BIN)/python benchmarks/planner.py
	@$(BIN)/python benchmarks/real_scores.py

bench-secagg: $(VENV)/.test
	@$(BIN)/python benchmarks/secagg.py

bench-flower: $(VENV)/.test
	@$(BIN)/python benchmarks/flower.py

bench-local: $(VENV)/.test
	@$(BIN)/python benchmarks/local.py

bench-page: $(VENV)/.test programs
	@$(BIN)/python benchmarks/page.py
	@$(BIN)/python studies/local_error.py

studies: $(VENV)/.test
	@$(BIN)/python studies/slopes.py

study-coverage: $(VENV)/.test
	@$(BIN)/python studies/coverage.py
	@$(BIN)/python studies/calibration_coverage.py
	@$(BIN)/python studies/benefit_coverage.py

study-calibrators: $(VENV)/.test
	@$(BIN)/python studies/calibrator_error.py
	@$(BIN)/python studies/calibrator_loss.py

study-two-rounds: $(VENV)/.test
	@$(BIN)/python studies/two_rounds.py
	@$(BIN)/python studies/two_round_coverage.py

study-vertical: $(VENV)/.test
	@$(BIN)/python studies/vertical.py
	@$(BIN)/python studies/sun_figures.py

clean:
	@rm -rf $(VENV) $(OLDEST) docs/_build docs/api docs/auto_examples dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache fedgauge-demo
