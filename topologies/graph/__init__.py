"""The parts of a fabric of any kind: nodes, cables, addresses, parameters, and their checks."""
