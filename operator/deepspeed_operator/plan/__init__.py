"""What a job will cost: memory, traffic and time of an optimizer step, and which change would cost less."""
