"""Troubleshooting drills: a fabric that stands still, a fault that nobody names, a score that is exact."""
