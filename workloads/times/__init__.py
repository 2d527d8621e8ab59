"""What the hosts' collectives should take on an idle fabric: one formula per algorithm (docs/collectives.md)."""
