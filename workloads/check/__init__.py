"""Schedules proved right before anything starts."""
