"""From the steps of a workload to those of the plan, which workers are told."""
