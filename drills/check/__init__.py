"""The check of a drill: its fault can be seen, found, and told from others."""
