"""What DeepSpeed accepts: configuration text, and the batch arithmetic."""
