"""An attempt's life: beginning, waiting, starting, running."""
