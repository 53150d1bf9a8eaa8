"""Why an attempt failed, or does not come up, and what to do about it."""
