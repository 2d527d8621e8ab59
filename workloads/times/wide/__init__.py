"""Times of all ranks at once, as arrays."""
