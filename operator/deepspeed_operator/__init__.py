"""A Kubernetes operator that runs DeepSpeed training from one DeepSpeedJob."""
