"""Network profiles as data, what they add to a pod, and what variables of collective libraries deserve a word."""
