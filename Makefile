# Two commands matter: `make demo` and `make test`.  Each first makes .venv from requirements.lock.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test check bench clean

help:
	@echo "make demo    tune resnet-18 for about two minutes and time it beside ONNX Runtime"
	@echo "make test    all tests"
	@echo "make check   formatting, lint, types, import rules and the quick tests"
	@echo "make bench   the built-in networks side by side with other engines"
	@echo "make clean   remove caches and build products (keeps .venv)"

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("noctune needs Python 3.11 or newer: make PYTHON=python3.x" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

demo: $(INSTALLED)
	$(BIN)/noctune demo

test: $(INSTALLED)
	$(BIN)/python -m pytest

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -m "not slow"

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks.run

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	find engine db tasks flows tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
