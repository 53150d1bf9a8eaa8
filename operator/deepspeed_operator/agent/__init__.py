"""The agent's files, as package data. They run flat in the worker pod, so nothing here is imported."""
