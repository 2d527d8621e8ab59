"""What the network does for ranks: trees over switches, and what is placed on them."""
