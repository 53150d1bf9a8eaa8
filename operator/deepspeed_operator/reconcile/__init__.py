"""Observed objects → actions and status: the state machine, its conditions, and who failed first."""
