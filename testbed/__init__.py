"""Railbed: testbed."""
