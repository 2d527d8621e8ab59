"""Runs from end to end: one, at many points, or in the background; followed, diagnosed, stored, shown."""
