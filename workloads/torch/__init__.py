"""Unmodified PyTorch scripts: recorded as graphs of tasks, which the fabric then carries out.

Only `rank.py` and what it uses imports torch, in processes of its own: all else works from what those have written.
"""
