"""What DeepSpeed accepts: reads a configuration, judges it by the schema of a version, and migrates it to another."""
