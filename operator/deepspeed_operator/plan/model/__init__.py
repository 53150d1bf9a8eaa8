"""The model: its parameters, layers and experts, as declared or as its config.json has them."""
