# make demo    solve a Poisson problem on a curved mesh, from nothing
# make test    the tests
# make help    the rest

PYTHON ?= python3
PYTEST_ARGS ?= -n auto --maxprocesses 4 --dist worksteal
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# uv takes seconds where pip takes minutes, but does not read pip's settings, of mirrors for example.
UV := UV_NATIVE_TLS=1 $(BIN)/python -m uv pip install --quiet --compile-bytecode --python $(BIN)/python
install = $(UV) $(1) || { echo "uv could not install this. Now pip does, which takes minutes"; $(PIP) install --quiet $(1); }
comma := ,
OLDEST := 3.11

# Bytecode is kept: tests start hundreds of processes, which would compile all modules each time.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help demo test quick exhaustive lint format docs dist clean
.DELETE_ON_ERROR:

help:
	@echo "make demo        solve a Poisson problem at order 4 on a curved mesh, without a matrix"
	@echo "make test        run the tests (PYTEST_ARGS=tests/forms and the like are passed on)"
	@echo "make quick       run one case of each test that is fast"
	@echo "make exhaustive  run the full product of cases: long"
	@echo "make lint        ruff, mypy, import-linter"
	@echo "make format      let ruff order imports and lay out the code"
	@echo "make docs        build the documentation into docs/_build/html"
	@echo "make dist        build the wheel and the source archive into dist"
	@echo "make clean       remove what make has made, .venv included"
	@echo "PYTHON=python3.12 and the like choose the Python, $(OLDEST) or newer"

demo: $(VENV)/.installed
	$(BIN)/femops demo

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# One case of each test that was fast when it last ran, without ranks, devices and processes.
quick: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --quick $(PYTEST_ARGS)

# In shares, each a process of its own: kernels stay in memory until it ends.
exhaustive: $(VENV)/.installed-dev
	for k in 1 2 3 4 5 6 7 8; do \
		$(BIN)/python -m pytest -m exhaustive --share $$k/8 $(PYTEST_ARGS) || exit 1; \
	done

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-dev
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@! grep -rlE '<(script|link|img)[^>]*(src|href)="https?:' docs/_build/html --include=*.html || { \
		echo "these pages need a network" >&2; exit 1; }
	@echo "docs/_build/html/index.html"

dist: $(VENV)/.installed-dev
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

clean:
	rm -rf $(VENV) build dist out docs/_build docs/gallery .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache .hypothesis
	find femops femops_common kernels meshes tests docs examples -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: each installation happens once, again when pyproject.toml changes, and in this order
# even under make -j.

$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
		echo "femops needs Python $(OLDEST) or newer, and there is no '$(PYTHON)' here." >&2; \
		echo "Install it, or name yours: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = "$(OLDEST)".split("."); sys.exit(sys.version_info < (int(v[0]), int(v[1])))' || { \
		echo "femops needs Python $(OLDEST) or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name a newer one: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { \
		echo "'$(PYTHON) -m venv' failed. Debian and Ubuntu keep it in a package of its own: apt install python3-venv" >&2; \
		exit 1; }
	@$(PIP) install --quiet uv || echo "uv could not be installed. pip installs the rest, which takes minutes"
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.created
	@echo "Installing femops and what it needs into $(VENV) (once)"
	@$(call install,--editable . 'matplotlib>=3.9')
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing the developers' tools into $(VENV) (once)"
	@$(call install,--editable '.[dev$(comma)docs]')
	@touch $@
