# Every word here works from a bare clone: Python 3.11 or newer, gcc and make are enough, and on
# a Debian machine where you are root even those are fetched. `make help` lists the words.

BIN     := .venv/bin
KERNEL  := src/millstream/kernel
JOBS    ?= 2
ARGS    ?=
PYTEST  := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run build test check lint words unit crash spark proof mutants compat bench docs shape lock clean

help:           ## list the commands
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 18

run: build      ## set up if needed, then serve; ARGS='--port 5222' passes options
	./millstream serve $(ARGS)

build: .venv/.kernel millstream ## the environment, the compiled kernel and ./millstream
	@$(BIN)/python -m compileall -q src  # so that the first start is as quick as the next

test: .venv/.dev .venv/.spark .venv/.browser build lint words ## everything, long forms in their short form
	$(PYTEST) -n $(JOBS) -m "not spark"
	$(PYTEST) -m spark

check: lint words unit ## what to run before each commit: under two minutes, no Spark

lint: .venv/.dev build ## style, types, import rules, stubs
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m mypy.stubtest millstream.kernel --mypy-config-file pyproject.toml \
	  --allowlist scripts/stubtest-allow.txt --ignore-unused-allowlist --ignore-disjoint-bases

words: .venv/.dev .venv/.docs build ## spelling, plain English, and a manual without broken links
	$(BIN)/codespell README.md *.md docs src examples
	@mkdir -p build
	$(BIN)/python scripts/readability.py > build/readability.txt || { grep hard build/readability.txt; exit 1; }
	$(BIN)/sphinx-build -W -q -b html docs build/docs

unit: .venv/.dev build ## tests that need neither Spark nor patience
	$(PYTEST) -n $(JOBS) -m "not spark and not slow"

crash: .venv/.dev build ## the crash sweeps alone
	$(PYTEST) -n $(JOBS) tests/crash

spark: .venv/.dev .venv/.spark build ## the Spark tests alone
	$(PYTEST) -m spark

proof: .venv/.dev .venv/.spark build ## everything in its long form: takes hours
	MILLSTREAM_PROOF=1 $(PYTEST) --timeout=7200 -n $(JOBS) -m "not spark"
	MILLSTREAM_PROOF=1 $(PYTEST) --timeout=7200 -m spark

mutants: .venv/.dev .venv/.spark build ## plant every known bug and see that the tests notice
	MILLSTREAM_PROOF=1 $(PYTEST) --timeout=1200 -v tests/mutants tests/crash/test_planted_bugs.py

compat: .venv/.dev build ## SUITE=<checkout>: a client library's own tests against millstream
	scripts/compat.sh "$(SUITE)" $(ARGS)

bench: .venv/.dev build ## measure against nats-server, side by side
	$(BIN)/python benches/run.py $(ARGS)

docs: .venv/.docs build ## the manual as HTML, in build/docs
	$(BIN)/sphinx-build -W -q -b html docs build/docs
	@echo "open build/docs/index.html"

shape: .venv/.run ## how large files, functions, classes and folders are; ARGS="--against CHECKOUT"
	$(BIN)/python scripts/shape.py src $(ARGS)

lock: .venv/.dev .venv/.spark .venv/.docs ## write what is installed into requirements/
	$(BIN)/python scripts/lock.py

clean:          ## remove everything that was built, but no data
	rm -rf .venv build dist src/build src/*.egg-info millstream $(KERNEL)/*.c $(KERNEL)/*.so

# A stamp stands for an installed set; it is renewed when its lock file changes.
.venv/.run: requirements/run.txt pyproject.toml scripts/bootstrap.sh
	scripts/bootstrap.sh venv
	$(BIN)/pip install -q -r $<
	MILLSTREAM_KERNEL=skip $(BIN)/pip install -q --no-deps --no-build-isolation -e .
	@touch $@

.venv/.dev .venv/.docs: .venv/.%: requirements/%.txt .venv/.run
	$(BIN)/pip install -q -r $<
	@touch $@

.venv/.spark: requirements/spark.txt .venv/.dev
	scripts/bootstrap.sh java
	$(BIN)/pip install -q -r $<
	@touch $@

.venv/.browser: .venv/.run
	scripts/bootstrap.sh browser
	scripts/bootstrap.sh prometheus
	@touch $@

.venv/.kernel: $(wildcard $(KERNEL)/*.pyx $(KERNEL)/*.pxd) setup.py .venv/.run
	@touch $@.begun  # what changes during the build is newer than this, and made again
	MILLSTREAM_KERNEL=require $(BIN)/python setup.py -q build_ext --inplace -j $(JOBS)
	@mv $@.begun $@

millstream: scripts/launcher.sh
	install -m 755 $< $@
