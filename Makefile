# Two commands are enough on a fresh machine: `make demo` and `make test`. Both set up .venv, build, and go.
#
# Every stage is also a plain line: .venv/bin/python -m pytest, -m ruff check, -m mypy, setup.py build_ext --inplace.

VENV   := .venv
PY     := $(VENV)/bin/python
CC     ?= cc
JOBS   := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
PYTEST ?=

SOURCES := $(shell find fastfetch include -name '*.pyx' -o -name '*.pxd' -o -name '*.h') setup.py

# cython-lint and stubtest call programs by name.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: help demo test bench sanitize lint annotate clean setup build live
.DEFAULT_GOAL := help

help:
	@echo "make demo      fetch a few million records from an embedded broker, with rates; kill one of two members of a group"
	@echo "make test      build and run every test (PYTEST='-k name -x' is passed on)"
	@echo "make bench     the figures, against a C floor and other clients (BENCH='--only decode' is passed on)"
	@echo "make sanitize  decode tests and mutated inputs under AddressSanitizer and UBSan"
	@echo "make lint      ruff, mypy, stubtest, cython-lint"
	@echo "make live      only the tests that start a real Kafka broker (Java 17 and Maven)"
	@echo "make annotate  Cython's annotated HTML of each kernel, under build/annotate"
	@echo "make clean     remove all that the build made; .venv stays"

demo: build
	@$(VENV)/bin/kfetch demo

test: build
	@$(PY) -m pytest $(PYTEST)

live: build
	@$(PY) -m pytest tests/live $(PYTEST)

bench: build
	@$(PY) -m bench.figures $(BENCH)

lint: build
	@$(PY) -m pytest tests/test_style.py tests/test_layers.py $(PYTEST)

# ---------------------------------------------------------------------------------------------------------- set-up

setup: $(VENV)/.ready
build: build/.built

# A candidate must be new enough, able to make an environment with pip, and have the header that extensions are compiled with.
CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11
FITS := import sys, os, sysconfig, venv, ensurepip; \
	sys.exit(sys.version_info < (3, 11) or not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))

$(VENV)/.ready: pyproject.toml
	@command -v $(firstword $(CC)) >/dev/null || { echo "fastfetch needs a C compiler to build: '$(CC)' is not on PATH (set CC=... to name another)" >&2; exit 1; }
	@if [ ! -x $(PY) ]; then \
	  for python in $(PYTHON) $(CANDIDATES) ""; do \
	    if [ -n "$$python" ] && "$$python" -c '$(FITS)' 2>/dev/null; then break; fi; \
	  done; \
	  [ -n "$$python" ] || { echo "fastfetch needs Python 3.11 or later with venv, pip and Python.h; none of $(strip $(PYTHON) $(CANDIDATES)) has them all (set PYTHON=... to name another)" >&2; exit 1; }; \
	  echo "Setting up $(VENV) with $$("$$python" -V) (once, about a minute)"; \
	  "$$python" -m venv $(VENV); \
	fi
	@mkdir -p build
	@$(PIP) "setuptools>=77" "cython>=3.1" $(QUIET)
	@$(COMPILE) $(QUIET)
	@FASTFETCH_PREBUILT=1 $(PIP) --no-build-isolation -e ".[test]" $(QUIET)
	@touch $@ build/.built

build/.built: $(VENV)/.ready $(SOURCES)
	@mkdir -p build
	@$(COMPILE) $(QUIET)
	@touch $@

PIP := $(PY) -m pip install --disable-pip-version-check
# Before the editable install, which would compile everything each time, one file after the other.
COMPILE := $(PY) setup.py -q build_ext --inplace -j $(JOBS)
QUIET := > build/log 2>&1 || { cat build/log >&2; exit 1; }

# ------------------------------------------------------------------------------------------------------- the rest

sanitize: $(VENV)/.ready
	@$(PY) tests/sanitize.py $(PYTEST)

# A copy, because the annotated C differs from the compiled one and would make every extension look stale.
annotate: $(VENV)/.ready
	@rm -rf build/annotate && mkdir -p build/annotate && cp -R fastfetch include build/annotate/
	@cd build/annotate && find fastfetch -name '*.c' -delete && \
	  $(CURDIR)/$(PY) -m cython -3 --annotate -I include $$(find fastfetch -name '*.pyx')
	@find build/annotate -name '*.html'

clean:
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .benchmarks
	@find fastfetch \( -name '*.so' -o -name '*.html' -o -name '*.c' ! -name floor.c \) -delete
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
