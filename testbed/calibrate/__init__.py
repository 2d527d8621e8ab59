"""`testbed calibrate`: from rows of measured times to a cluster's profile, and how far to trust it."""
