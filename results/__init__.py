"""Railbed: results."""
