"""Folders of runs and sweeps: written, found again, read back."""
