"""What every fabric is made of, whatever its kind: nodes, cables, addresses, parameters, and how they are checked."""
