"""Workloads: the verbs client, what workers run on it, and what it should cost."""
