.PHONY: images requirements
# Other bases than the Debian ones made here, such as the public ones that the Containerfiles name, are pulled.
OPERATOR_BASE ?=
WORKER_BASE ?=
WORKER_BUILD_BASE ?=
REGISTRY ?=
IMAGES ?= operator worker

images: $(SYNCED) ## Build the operator's and the worker's image; REGISTRY=r pushes them there. IMAGES= OPERATOR_BASE= WORKER_BASE= WORKER_BUILD_BASE=
	$(PYTHON) -m dev.images release $(IMAGES) --registry "$(REGISTRY)" --operator-base "$(OPERATOR_BASE)" \
		--worker-base "$(WORKER_BASE)" --worker-build-base "$(WORKER_BUILD_BASE)"

# $(call export,FILE,GROUP,PACKAGES) pins a dependency group of pyproject.toml, but for packages that the image's base brings.
export = $(UV) export --quiet --frozen --no-header --no-annotate --output-file $(1) --only-group $(2) $(addprefix --prune ,$(3)) >/dev/null

requirements: $(SYNCED) ## Write again what pip installs in the images, with hashes, from uv.lock.
	$(call export,images/operator/build.txt,operator-build)
	$(call export,images/worker/build.txt,worker-build)
	$(call export,images/worker/requirements.txt,worker,torch)
	$(call export,images/worker/huggingface.txt,huggingface,torch numpy psutil pydantic)
