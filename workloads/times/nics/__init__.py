"""Times of what goes over several NICs of a server, or ports of a NIC, at once."""
