"""The steps of a workload as typed models: collectives, flows, tasks, and what becomes tasks."""
