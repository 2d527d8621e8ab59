"""What is typed at a live fabric: commands as entries of registries, and what their parameters may be."""
