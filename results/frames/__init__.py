"""The tables of a run: what columns they have, and their rows, made of measurements, counters and samples."""
