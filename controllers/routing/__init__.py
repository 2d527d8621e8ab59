"""Where frames may go: routes over the cables that are up, as flows of every switch."""
