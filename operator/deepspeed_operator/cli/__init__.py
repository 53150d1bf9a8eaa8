"""`dsjob`: judges DeepSpeedJobs and DeepSpeed configurations on a desk or in CI, as the operator would in a cluster."""
