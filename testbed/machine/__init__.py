"""This machine: processes, locks, control groups, and who owns what on it.

Nothing here knows what a fabric is made of.
"""
