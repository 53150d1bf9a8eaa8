"""Findings about a job's network: its profile, and the variables of collective libraries."""
