"""What one rank passes to collectives in an optimizer step."""
