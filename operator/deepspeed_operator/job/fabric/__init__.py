"""Network profiles as data: what a fabric needs, and what of it is checked in the pods."""
