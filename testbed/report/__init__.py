"""A run or a sweep as one HTML file that needs nothing else."""
