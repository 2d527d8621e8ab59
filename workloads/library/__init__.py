"""How a collective library carries collectives out: channels, protocols, its choice, and what that takes."""
