"""Offloaded collectives: trees over switches, and the jobs that are placed on them."""
