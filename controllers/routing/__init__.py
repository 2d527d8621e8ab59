"""Routes over the cables that are up, as flows of every switch."""
