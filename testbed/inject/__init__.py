"""Faults in live fabrics: put in, carried out, healed."""
