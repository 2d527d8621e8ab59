"""Whether a drill is one: its fault can be seen, found, and told from others."""
