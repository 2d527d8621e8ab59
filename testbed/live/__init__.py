"""A fabric that is up: its status, views of its counters, its verdict, and its jobs."""
