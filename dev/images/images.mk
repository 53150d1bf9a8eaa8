.PHONY: images
# Other bases than the Debian ones made here, such as the public ones that the Containerfiles name, are pulled.
OPERATOR_BASE ?=
WORKER_BASE ?=
WORKER_BUILD_BASE ?=
REGISTRY ?=
IMAGES ?= operator worker

images: $(SYNCED) ## Build the operator's and the worker's image; REGISTRY=r pushes them there. IMAGES= OPERATOR_BASE= WORKER_BASE= WORKER_BUILD_BASE=
	$(PYTHON) -m dev.images release $(IMAGES) --registry "$(REGISTRY)" --operator-base "$(OPERATOR_BASE)" \
		--worker-base "$(WORKER_BASE)" --worker-build-base "$(WORKER_BUILD_BASE)"
