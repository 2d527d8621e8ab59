"""Topologies: pure graphs of servers, GPUs, NICs, switches and cables."""
