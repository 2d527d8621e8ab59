"""What everything here uses and that knows nothing of fabrics: errors, units, the types of written values."""
