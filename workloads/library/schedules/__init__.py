"""What ranks do when a library carries a collective out, and what that takes on a fabric."""
