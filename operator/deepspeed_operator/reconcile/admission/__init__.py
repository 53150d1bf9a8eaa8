"""Whether a run may begin."""
