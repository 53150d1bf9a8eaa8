.PHONY: cluster cluster-down pod-fields
NODES ?= 2

cluster: $(SYNCED) ## Bring up this machine's Kubernetes (NODES=2), as the tests and the demonstration use it.
	$(PYTHON) -m dev.cluster up --nodes $(NODES)

cluster-down: $(SYNCED) ## Take it down; programs and images stay in the cache.
	$(PYTHON) -m dev.cluster down

pod-fields: $(SYNCED) ## Write the fields of a pod again, by which dsjob knows misspelt ones, from Kubernetes' OpenAPI document.
	$(PYTHON) -m dev.cluster.pod_fields
