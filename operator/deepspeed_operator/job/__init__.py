"""One job as given: its template, world, ports, accelerators and GPUs, image, network profile; the sources of facts."""
