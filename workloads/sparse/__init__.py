"""Zero-sparse all-reduce: blocks of zeros stay at home."""
