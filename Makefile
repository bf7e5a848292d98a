# Everything a user or developer does, by name. `make` alone lists the targets.

CONFIG := configs/list_reduction.yaml
SET    :=
RUN    := last
FILE   :=
NAME   :=
ARGS   :=
SEEDS  := 0 1 2 3 4
EXPERIMENT :=
REPEATS    := 5

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --quiet
# What an installation depends on: it is redone when one of these changes.
PINS   := setup.cfg pyproject.toml constraints.txt
TORCH  := torch==2.13.0
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu

.DEFAULT_GOAL := help
.PHONY: help setup run fetch mnist fashion-mnist sentiment python-trees babi15 babi15-large qm9 python-names japanese-vowels check graph kinds evaluate predict replay verify runs report logs test coverage chaos lint format docs bench profile startup seeds replicas staleness remedy-cost graph-cost mnist-peer fashion-peer qm9-peer soak checkpoint-cost peers clean distclean

##@ Help

help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nVariables: CONFIG=%s  SET="key=value ..."  RUN=%s  FILE=  SEEDS="%s"  ARGS="options of the command"\n' \
	  '$(CONFIG)' '$(RUN)' '$(SEEDS)'

##@ Train

setup: $(VENV)/run.stamp ## make .venv with what a run needs (also done by the targets below)

run: $(VENV)/run.stamp ## train CONFIG with the settings of SET (ARGS='--resume last': go on)
	$(PY) -m amp_runtime run $(if $(findstring --resume,$(ARGS)),,'$(CONFIG)') $(SET) $(ARGS)

fetch: $(VENV)/run.stamp ## get digits for `make mnist` (NAME=qm9: molecules; japanese_vowels) into AMP_DATA, else ./data
	$(PY) -m amp_runtime data fetch '$(or $(NAME),mnist5k)'

mnist: $(VENV)/run.stamp ## train on handwritten digits (AMP_DATA=folder of the data)
	$(PY) -m amp_runtime run configs/mnist.yaml $(SET) $(ARGS)

fashion-mnist: $(VENV)/run.stamp ## train on Fashion-MNIST (AMP_DATA=folder of the data)
	$(PY) -m amp_runtime run configs/fashion_mnist.yaml $(SET) $(ARGS)

sentiment: $(VENV)/run.stamp ## train a Tree-LSTM on a treebank (AMP_DATA=folder of the data)
	$(PY) -m amp_runtime run configs/sentiment.yaml $(SET) $(ARGS)

python-trees: $(VENV)/run.stamp ## train on syntax trees of the standard library's functions
	$(PY) -m amp_runtime run configs/python_trees.yaml $(SET) $(ARGS)

# The newest run is the one that was just trained. The test graphs are read here, and only here.
babi15: $(VENV)/run.stamp ## train on bAbI task 15, then test (AMP_DATA=folder of the data)
	$(PY) -m amp_runtime run configs/babi15.yaml $(SET) $(ARGS)
	$(PY) -m amp_runtime evaluate last data.valid_path=babi15/test_15_graphs.txt data.valid=1000

babi15-large: $(VENV)/run.stamp ## the same on generated graphs of 54 nodes
	$(PY) -m amp_runtime run configs/babi15_large.yaml $(SET) $(ARGS)
	$(PY) -m amp_runtime evaluate last seed=1000003 data.valid=1000

qm9: $(VENV)/run.stamp ## train on the dipole moment of molecules (AMP_DATA=folder of the data)
	$(PY) -m amp_runtime run configs/qm9.yaml $(SET) $(ARGS)

python-names: $(VENV)/run.stamp ## train on the roles of names in the standard library's functions
	$(PY) -m amp_runtime run configs/python_names.yaml $(SET) $(ARGS)

japanese-vowels: $(VENV)/run.stamp ## train on who speaks (after `make fetch NAME=japanese_vowels`)
	$(PY) -m amp_runtime run configs/japanese_vowels.yaml $(SET) $(ARGS)

##@ Look before a run

check: $(VENV)/run.stamp ## resolve CONFIG and SET, show graph and placement; rehearse one instance
	$(PY) -m amp_runtime check '$(CONFIG)' $(SET) $(ARGS)

graph: $(VENV)/run.stamp ## draw the graph of CONFIG as Mermaid (ARGS=--dot for Graphviz)
	$(PY) -m amp_runtime graph '$(CONFIG)' $(SET) $(ARGS)

kinds: $(VENV)/run.stamp ## list node kinds, optimizers, models, data (NAME=adam: options)
	$(PY) -m amp_runtime kinds $(if $(NAME),'$(NAME)' '$(CONFIG)') $(ARGS)

##@ Look at a run

runs: $(VENV)/run.stamp ## list all runs: when, how far, how well, how they ended
	$(PY) -m amp_runtime runs $(ARGS)

evaluate: $(VENV)/run.stamp ## loss and metrics of RUN, forward only (SET='split=train data.path=...')
	$(PY) -m amp_runtime evaluate '$(RUN)' $(SET) $(ARGS)

predict: $(VENV)/run.stamp ## what RUN makes of the examples in FILE (SET=out=predictions.jsonl)
	@$(PY) -m amp_runtime predict '$(RUN)' '$(FILE)' $(SET) $(ARGS)

replay: $(VENV)/run.stamp ## do RUN again in one process, if it was trained with SET=runtime.record=true
	$(PY) -m amp_runtime replay '$(RUN)' $(ARGS)

verify: $(VENV)/run.stamp ## check that the checkpoints of RUN are whole
	$(PY) -m amp_runtime verify '$(RUN)' $(ARGS)

logs: $(VENV)/run.stamp ## print the workers' logs of RUN, merged by time
	$(PY) -m amp_runtime logs $(RUN) $(ARGS)

report: $(VENV)/run.stamp ## print what RUN did: stages, nodes, errors
	$(PY) -m amp_runtime report $(RUN) $(ARGS)

##@ Develop

# Two at a time; ARGS='-n 0' runs one at a time.
# Each of two runs a half, in order, and takes from the other's when it is done: so what is made
# once a file is made once, and real runs go beside tests/pure rather than beside each other.
test: $(VENV)/test.stamp ## run the tests (ARGS='-k name', ARGS=tests/pure)
	$(PY) -m pytest -n 2 --dist worksteal $(ARGS)

coverage: $(VENV)/test.stamp ## run the tests and say which lines they reach, workers included
	$(PY) -m coverage erase
	$(PY) -m coverage run -m pytest $(ARGS)
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report

chaos: $(VENV)/test.stamp ## kill workers at random while whole numbers are counted (ARGS='--kills 200')
	PYTHONPATH=tests:. $(PY) tests/chaos.py $(ARGS)

lint: $(VENV)/lint.stamp ## check style, format and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(VENV)/lint.stamp ## format the code, and mend what ruff can mend
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

docs: $(VENV)/run.stamp ## make what is generated: configs/README.md, schema.json, broken configs
	$(PY) -c 'from amp_runtime.config.page import markdown; print(markdown(), end="")' \
	  > configs/README.md.new
	mv configs/README.md.new configs/README.md
	$(PY) -m amp_runtime schema > configs/schema.json.new
	mv configs/schema.json.new configs/schema.json
	PYTHONPATH=. $(PY) tests/broken_configs.py > docs/broken_configs.md.new
	mv docs/broken_configs.md.new docs/broken_configs.md

# What is done stands in the files, and is not measured again.
bench: $(VENV)/bench.stamp ## ours beside its peers, then startup (EXPERIMENT="trees images", REPEATS=5)
	REPEATS=$(REPEATS) $(PY) -m benchmarks.bench runs/bench.jsonl $(EXPERIMENT) $(SET)
	$(PY) benchmarks/startup.py

profile: $(VENV)/run.stamp ## where the time of each worker goes, in a run of CONFIG with SET
	$(PY) -m benchmarks.profile_run '$(CONFIG)' $(SET)

startup: $(VENV)/run.stamp ## measure start-up and memory of workers
	$(PY) benchmarks/startup.py

seeds: $(VENV)/run.stamp ## train CONFIG with each of SEEDS; print medians
	$(PY) benchmarks/seeds.py '$(CONFIG)' "$(SEEDS)" $(SET)

# What is done stands in the file, and is not run again.
replicas: $(VENV)/run.stamp ## train with 1, 2 and 4 replicas of a node, by each averaging and SEEDS
	$(PY) benchmarks/replicas.py runs/replicas.jsonl "$(SEEDS)" $(SET)

staleness: $(VENV)/run.stamp ## epochs by staleness, with and without compensation, by SEEDS
	$(PY) benchmarks/staleness.py runs/staleness.jsonl "$(SEEDS)" $(SET)

mnist-peer: $(VENV)/peers.stamp ## the digits beside PyTorch (AMP_DATA=folder of the data)
	$(PY) benchmarks/image_peer.py configs/mnist.yaml "0 1 2" $(SET)

fashion-peer: $(VENV)/peers.stamp ## Fashion-MNIST beside PyTorch (AMP_DATA=folder of the data)
	$(PY) benchmarks/image_peer.py configs/fashion_mnist.yaml "0 1 2" $(SET)

remedy-cost: $(VENV)/test.stamp ## memory and CPU of each remedy for delay, at one node
	$(PY) benchmarks/remedy_cost.py

graph-cost: $(VENV)/run.stamp ## CPU of a bond, memory of a molecule, with 10 to 10,000 in flight
	$(PY) benchmarks/graph_cost.py

qm9-peer: $(VENV)/peers.stamp ## QM9 beside PyTorch (AMP_DATA=folder); goes on in runs/qm9_peer.jsonl
	$(PY) benchmarks/qm9_peer.py runs/qm9_peer.jsonl "0 1 2" $(SET)

soak: $(VENV)/run.stamp ## memory, descriptors, threads while 200,000 examples go through 24 workers
	$(PY) benchmarks/soak.py $(or $(ARGS),200000) $(SET)

checkpoint-cost: $(VENV)/run.stamp ## sentiment with a checkpoint every 5 s beside none, by SEEDS (AMP_DATA=folder)
	$(PY) benchmarks/checkpoint_cost.py runs/checkpoint_cost.jsonl "$(SEEDS)" $(SET)

peers: $(VENV)/peers.stamp ## add PyTorch (CPU build) and RDKit, for the tests that compare with them

clean: ## remove caches and what tests and builds left
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.* build *.egg-info
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## remove .venv too; runs/ is kept
	rm -rf $(VENV)

# ------------------------------------------------------------------------ installation

# A venv of a Python that is too old would fail much later, and say something else.
$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "error: no $(PYTHON); install Python 3.11 or newer, or name one: make PYTHON=python3.12" >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $$($(PYTHON) --version) is too old; name a newer one: make PYTHON=python3.11" >&2; \
	  exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { \
	  rm -rf $(VENV); \
	  echo "error: cannot make a virtual environment; on Debian: apt install python3-venv" >&2; \
	  exit 1; }

$(VENV)/run.stamp: $(PINS) | $(VENV)/bin/python
	@echo "Installing amp_runtime"
	@$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/test.stamp: $(PINS) | $(VENV)/bin/python
	@echo "Installing amp_runtime and its test tools"
	@$(PIP) install --constraint constraints.txt --editable '.[test]'
	@touch $@ $(VENV)/run.stamp

$(VENV)/lint.stamp: $(PINS) | $(VENV)/bin/python
	@echo "Installing amp_runtime and its lint tools"
	@$(PIP) install --constraint constraints.txt --editable '.[lint]'
	@touch $@ $(VENV)/run.stamp

# The wheel first and alone: from a folder that the user's pip is configured to look
# into (PIP_FIND_LINKS), so that it works offline; else from PyTorch's index of CPU
# builds, since the build on the default index brings several GB of CUDA libraries.
# What PyTorch itself needs comes from the default index.
$(VENV)/peers.stamp: $(VENV)/test.stamp
	@echo "Installing $(TORCH), CPU build"
	@$(PIP) install --no-index --no-deps '$(TORCH)' 2>/dev/null \
	  || $(PIP) install --no-deps --index-url $(TORCH_CPU_INDEX) '$(TORCH)'
	@$(PIP) install --constraint constraints.txt --editable '.[test,peers,qm9]'
	@touch $@

# A Python for which DyNet has no wheel does without: the benchmark says so.
$(VENV)/bench.stamp: $(VENV)/peers.stamp
	@echo "Installing whom we are measured beside"
	@$(PIP) install --constraint constraints.txt 'torch_geometric >= 2.8'
	@$(PIP) install --constraint constraints.txt --only-binary dynet38 'dynet38 >= 2.2' \
	  || echo "DyNet is left out: it has no wheel for this Python"
	@touch $@
