"""One job as given: its world, ports, accelerators and GPUs, image and network profile; what a fact's source is."""
