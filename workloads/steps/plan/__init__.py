"""A training step as it is asked for: model, GPU, dimensions and their places, schedule; and what cannot be."""
