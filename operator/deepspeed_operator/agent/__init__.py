"""The agent, as package data: it runs in the worker pod, on the image's own Python, so nothing here is imported."""
