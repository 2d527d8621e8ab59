"""Collectives that NICs and switches carry out: what the ranks do for them."""
