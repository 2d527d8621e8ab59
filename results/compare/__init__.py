"""Runs and sweeps held against each other: keys that differ, figures with ratios and intervals, counters that moved."""
