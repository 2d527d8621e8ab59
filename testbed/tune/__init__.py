"""`testbed tune`: values of keys that make a figure least or most."""
