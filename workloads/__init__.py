"""Railbed: workloads."""
