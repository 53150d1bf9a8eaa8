"""What is known about a job and its pods at one moment."""
