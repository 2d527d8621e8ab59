"""Execution traces of Chakra (MLCommons) as graphs of tasks, and graphs as traces; AICB's text workloads, too."""
