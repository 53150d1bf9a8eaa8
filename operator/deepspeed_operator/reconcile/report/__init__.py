"""What status says: conditions, and what was changed in spec."""
