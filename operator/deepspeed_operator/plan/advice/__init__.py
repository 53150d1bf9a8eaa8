"""Which change of the configuration makes training faster, or lets it fit."""
