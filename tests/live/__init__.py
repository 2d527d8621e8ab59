"""Whole fabrics, containers, runs, and the command line against the machine: root."""
