"""What a fabric is to its ranks: a grid, an order for rings, the ways between them."""
