"""Findings about a job's template, its launcher and its network environment. Nothing here renders."""
