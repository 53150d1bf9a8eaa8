"""An attempt's life: beginning, starting, running, suspending, ending; what each phase does, and when it is left."""
