"""Faults in live fabrics: injected, carried out, healed."""
