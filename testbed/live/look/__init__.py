"""What a view of a live fabric may read: counters, events, tables of flows, parameters; and how much of it."""
