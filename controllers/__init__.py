"""Railbed: controllers."""
