"""Algorithms of one's own, from files: MSCCL's XML, and schedules in Python."""
