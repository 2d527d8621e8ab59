"""The ground floor, which knows nothing of fabrics: errors, units, the types of written values."""
