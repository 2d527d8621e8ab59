"""Runs from end to end: single runs, sweeps, background jobs; followed, diagnosed, stored, shown."""
