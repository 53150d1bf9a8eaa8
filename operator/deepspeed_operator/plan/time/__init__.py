"""How long a step takes: measured, calibrated, or assumed from a data sheet."""
