"""Drills that a seed makes."""
