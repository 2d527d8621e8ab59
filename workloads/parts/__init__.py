"""A rank's part of a workload: what it works with; flows and ping-pong."""
