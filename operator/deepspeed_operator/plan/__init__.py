"""What a job will be: its world, ports and the identity of its configuration."""
