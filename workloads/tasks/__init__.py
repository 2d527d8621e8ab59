"""Graphs of tasks: several collectives, messages and computations of a rank at a time, on streams."""
