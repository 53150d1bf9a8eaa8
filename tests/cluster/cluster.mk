.PHONY: cluster cluster-down cluster-build pod-fields
NODES ?= 2

cluster: $(SYNCED) ## Bring up this machine's Kubernetes (NODES=2), as the tests and the demonstration use it.
	$(PYTHON) -m tests.cluster up --nodes $(NODES)

cluster-down: $(SYNCED) ## Take it down; programs and images stay in the cache.
	$(PYTHON) -m tests.cluster down

cluster-build: $(SYNCED) ## Build its programs from Go modules.
	$(PYTHON) -m tests.cluster build

pod-fields: $(SYNCED) ## Write the fields of a pod again, by which dsjob knows misspelt ones, from Kubernetes' OpenAPI document.
	$(PYTHON) -m tests.cluster.pod_fields
