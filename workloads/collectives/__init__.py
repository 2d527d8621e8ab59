"""Collectives: one file per algorithm."""
