"""Real faults on the two-node cluster: `make faults-full` measures them, and writes docs/faults.md."""
