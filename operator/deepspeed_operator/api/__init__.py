"""What a user writes and reads: the DeepSpeedJob's spec and status, and the CRD generated from them."""
