"""Training steps as graphs of tasks: from a model, a batch, a plan of parallelism and a GPU.  Pure: no I/O."""
