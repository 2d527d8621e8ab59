"""Railbed: hardware."""
