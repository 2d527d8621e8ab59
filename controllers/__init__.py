"""The OpenFlow controller: routes, trees, the flows of every switch, and applications of a user's own."""
