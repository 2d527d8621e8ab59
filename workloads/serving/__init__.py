"""Serving a model: pools of GPUs, what a layer takes when it decodes, graphs of tasks of each way to serve."""
