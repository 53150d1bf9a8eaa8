"""What the ranks and their agents tell while they run."""
