.PHONY: dsconfig-schema oracle-full

dsconfig-schema: $(SYNCED) ## Describe a DeepSpeed version's configuration in operator/deepspeed_operator/dsconfig/schemas. VERSION=0.19.8
	PYTHONPATH=operator $(PYTHON) -m tests.oracle schema $(VERSION)

oracle-full: $(SYNCED) ## Compare verdicts with DeepSpeed's own, 5,000 configurations a version; writes docs/oracle.md, and the table of docs/validate.md.
	PYTHONPATH=operator $(PYTHON) -m tests.oracle full
