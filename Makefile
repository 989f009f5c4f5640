# The book's commands. Each verb is one line of work; `make` alone lists them.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help book serve lab pdf epub cards slides check test static mutants bench model portable refresh weave format lock clean

help: ## list the commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 18

# ---- environments: made once, renewed when a requirement changes. The first one grows: `make book`
# installs what renders the pages, the first command that runs a notebook adds torch, and so on.

$(VENV)/book: requirements-book.txt requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -r requirements-book.txt
	$(BIN)/python -m pip install --no-deps -e .
	@touch $@

$(VENV)/run: $(VENV)/book requirements.txt
	$(BIN)/python -m pip install -r requirements.txt
	@touch $@

$(VENV)/paper: $(VENV)/book requirements-paper.txt
	$(BIN)/python -m pip install -r requirements-paper.txt
	@touch $@

$(VENV)/test: $(VENV)/run $(VENV)/paper requirements-test.txt
	$(BIN)/python -m pip install -r requirements-test.txt
	@touch $@

# JupyterLab lives in an environment of its own and runs the notebooks with the book's Python.
.venv-lab/ready: $(VENV)/run requirements-lab.txt
	$(PYTHON) -m venv .venv-lab
	.venv-lab/bin/python -m pip install -r requirements-lab.txt
	$(BIN)/python -m ipykernel install --prefix .venv-lab --name python3 --display-name "Transformer Parts"
	@touch $@

# nbgrader brings JupyterLab along, so it has an environment of its own; torch it borrows.
.venv-nbgrader/ready: $(VENV)/run
	$(PYTHON) -m venv .venv-nbgrader
	.venv-nbgrader/bin/python -m pip install nbgrader==0.9.6
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
	  > $$(.venv-nbgrader/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/book.pth
	@touch $@

# ---- reading

book: $(VENV)/book ## build the website into _build/html, from the stored outputs
	rm -rf _build/html _build/.doctrees
	$(BIN)/jupyter-book build -W --keep-going -n .
	@echo; echo "The book is built. Open _build/html/index.html in a browser, or: make serve"

serve: book ## build the website and serve it on http://localhost:8000
	@echo "http://localhost:8000 (Ctrl+C ends it)"
	$(BIN)/python -m http.server 8000 --bind 127.0.0.1 --directory _build/html

lab: .venv-lab/ready ## open the notebooks in JupyterLab
	.venv-lab/bin/jupyter lab notebooks

pdf: $(VENV)/paper book ## the whole book as one PDF, checked
	$(BIN)/python -m book.take_away pdf _build/transformer-parts.pdf --check

epub: $(VENV)/paper book ## the whole book as one EPUB, checked
	$(BIN)/python -m book.take_away epub _build/transformer-parts.epub --check

cards: $(VENV)/book ## the questions of the chapters as cards for Anki
	$(BIN)/python -m book.questions _build/transformer-parts-cards.txt

# From the site as it is built; without one it is built first.
slides: $(VENV)/book ## a deck of slides for each chapter, in _build/slides
	@test -f _build/html/index.html || $(MAKE) book
	$(BIN)/python -m book.slides _build/slides

# ---- writing

refresh: $(VENV)/run ## run notebooks and store their outputs: make refresh NB=notebooks/08_normalization.ipynb
	$(BIN)/python -m book.refresh $(NB)

weave: $(VENV)/book ## write transformer_parts/ from the cells tagged `export`
	$(BIN)/python -m book.weave

format: $(VENV)/test ## put the Python files into canonical form
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

lock: ## renew requirements.lock from the requirements files
	$(PYTHON) -m venv _build/lock && _build/lock/bin/python -m pip install uv
	: > requirements.lock
	_build/lock/bin/uv pip compile requirements.txt requirements-test.txt requirements-lab.txt -o requirements.lock \
	  --universal --python-version 3.11 --no-header --no-annotate --no-emit-package transformer-parts

# ---- checking

check: $(VENV)/test ## all that concerns one chapter: make check NB=notebooks/08_normalization.ipynb
	$(BIN)/python -m book.check $(NB)

# Each worker gets one thread: two workers with all threads each would wait for one another.
test: $(VENV)/test ## everything that CI checks
	$(MAKE) -j2 --output-sync=target book static
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS)

static: $(VENV)/test
	$(BIN)/python -m book.weave --check
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy

mutants: $(VENV)/test ## try every wrong version of every printed formula
	OMP_NUM_THREADS=1 $(BIN)/python -m book.formulas.mutants --workers $(WORKERS)

bench: $(VENV)/test ## time the parts against torch's operators, as ratios in one run
	$(BIN)/python -m book.bench

model: $(VENV)/run ## train the book's own model again and write its files into model/ (two cores, some 15 minutes)
	$(BIN)/python -m book.own
	$(BIN)/python -m book.xray

portable: $(VENV)/test ## do the stored outputs hold with other threads, vector instructions, and rounding errors?
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) notebooks
	$(BIN)/pytest -n 1 notebooks
	OMP_NUM_THREADS=1 ATEN_CPU_CAPABILITY=default $(BIN)/pytest -n $(WORKERS) notebooks
	OMP_NUM_THREADS=1 PYTHONSTARTUP=$(CURDIR)/book/nudged.py $(BIN)/pytest -n $(WORKERS) notebooks

clean: ## remove what was built; keeps the environments
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis
