"""What DeepSpeed's engine does with a configuration: what it partitions, gathers, reduces and keeps."""
