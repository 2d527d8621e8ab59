"""What all workloads share: terms, entries, data."""
