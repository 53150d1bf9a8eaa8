# A bare Debian (bookworm or trixie) machine, as root, needs nothing but this file's checkout, git and make: the rest is installed here.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help

# Everything that is built once and reused: tools, cluster programs, image layers. It may be deleted at any time.
export DSJ_CACHE ?= /var/cache/deepspeed-operator
# What a target is about: a cluster made on this machine, or (CLUSTER=current) the one of your kubeconfig.
export CLUSTER ?= local

UV_VERSION := 0.13.9
UV_HOME := $(DSJ_CACHE)/uv-$(UV_VERSION)
UV := $(UV_HOME)/bin/uv
PYTHON := .venv/bin/python
SYNCED := .venv/.synced
# Tests without a cluster.
UNIT := tests/unit tests/demo
# Directories of the other tests, of which all but oracle's use the cluster: tests/beside.py says which go on at once.
STAGES := cluster-smoke images-test matrix e2e faults oracle life
TESTS_OF = tests/$(patsubst cluster-smoke,cluster,$(patsubst images-test,images,$(1)))

-include dev/cluster/cluster.mk dev/images/images.mk tests/oracle/oracle.mk

# It is made anew from whatever changed: nothing here lists what that may be.
.PHONY: dsjob.pyz
.PHONY: help demo test check lint unit build $(STAGES) faults-full kueue-full docs generate
help: ## This list.
	@sed -n 's/^\([a-z0-9.-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

demo: $(SYNCED) ## Train on two nodes from examples/quickstart.yaml. CLUSTER=current OPERATOR_IMAGE= WORKER_IMAGE= uses your cluster.
	$(PYTHON) -m dev.demo

# $(call timed,NAME,COMMAND) notes how long a part of `make test` took, for the table at its end.
timed = SECONDS=0; $(2); printf '%s\t%s\n' '$(1)' $$SECONDS >> $(DSJ_TIMING)

test: export DSJ_TIMING := $(abspath .venv/timing.tsv)
test: export DSJ_BEGAN := $(shell date +%s)
test: ## Everything: lint, types, unit tests, then the tests on a cluster made here; prints where the time went.
	@rm -f $(DSJ_TIMING)
	@$(call timed,uv sync,$(MAKE) --no-print-directory $(SYNCED))
	@$(call timed,lint and tests without a cluster,$(MAKE) --no-print-directory -j 2 --output-sync lint unit)
	@$(MAKE) --no-print-directory build
	.venv/bin/pytest -p tests.beside -p tests.timing -n 3 $(foreach stage,$(STAGES),$(call TESTS_OF,$(stage)))

check: lint unit ## Fast, without a cluster: lint, format, types, layers, the agent's Python version, unit tests.

lint: $(SYNCED)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/pyright
	.venv/bin/lint-imports
	$(PYTHON) -m dev.names
	.venv/bin/deptry operator
	.venv/bin/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yaml
	.venv/bin/zizmor --offline --quiet .github/workflows
	.venv/bin/vermin --target=3.8- --violations --no-tips operator/deepspeed_operator/agent
	git ls-files -z '*.py' '*.go' '*.sh' '*.mk' | xargs -0 awk 'FNR == 401 { print FILENAME ": over 400 lines"; bad = 1 } END { exit bad }'

# More of them at once than a small machine has processors: many wait for what they started. Whoever is done takes of the
# others, since those that wait longest are neighbours.
unit: $(SYNCED)
	.venv/bin/pytest -n 4 --dist worksteal $(UNIT)

build: $(SYNCED) ## The cluster's programs and all images, as far as they are not in the cache.
	$(PYTHON) -m dev.preparation

cluster-smoke: ## Tests of the one-machine cluster itself.
e2e: ## Tests on real kubelets: from kubectl apply to what status says.
faults: ## Tests in which API servers, operators, nodes and users misbehave.
faults-full: build ## Kill the operator at every write, and all else on the cluster: docs/kill-points.md, docs/faults.md.
	$(PYTHON) -m tests.faults
	.venv/bin/pytest tests/survival
kueue-full: build ## Tests with a real Kueue, which is built for them: docs/kueue-shown.md.
	.venv/bin/pytest tests/kueue
images-test: ## Tests of the images.
matrix: ## Tests of DeepSpeed's features, one by one, on the cluster: docs/matrix.md.
oracle: ## Tests against DeepSpeed itself, in every version.
life: ## The cluster goes down and comes up again.
$(STAGES): build
	.venv/bin/pytest $(call TESTS_OF,$@)

docs: $(SYNCED) ## The pages as a site, in site/: fails on a link that leads nowhere.
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet

generate: $(SYNCED) ## Write again what is generated: the CRD (crds/, chart, dsjob), examples, the chart's README, tables of docs/, golden files.
	PYTHONPATH=operator $(PYTHON) -m deepspeed_operator.api.crd > crds/deepspeedjobs.yaml
	cp crds/deepspeedjobs.yaml charts/deepspeed-operator/files/deepspeedjobs.yaml
	PYTHONPATH=operator $(PYTHON) -m deepspeed_operator.api.crd constraints > operator/deepspeed_operator/cli/constraints.json
	$(PYTHON) -m dev.demo.embed
	$(PYTHON) -m dev.chart_page
	.venv/bin/pytest -q tests/unit/api tests/unit/dsconfig tests/unit/render tests/unit/cli/test_import_golden.py tests/e2e/test_chart.py -k "golden or rendered or documents" --update-golden

KREW_URL ?=
KREW_HOMEPAGE ?=
dsjob.pyz: $(SYNCED) ## dsjob as one file, dist/dsjob.pyz; KREW_URL=… KREW_HOMEPAGE=… also make krew's archive and manifest.
	$(PYTHON) -m dev.dsjob --url "$(KREW_URL)" --homepage "$(KREW_HOMEPAGE)"

$(SYNCED): pyproject.toml uv.lock | $(UV)
	$(UV) sync --frozen --quiet --no-python-downloads
	touch $@

$(UV):
	python3 -c 'import ensurepip, venv' 2>/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends python3-venv; }
	python3 -m venv $(UV_HOME)
	$(UV_HOME)/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
