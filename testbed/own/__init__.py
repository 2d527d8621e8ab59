"""Code of users' own in C: compiled, looked at, and read as entries like ours. Nothing of it runs here."""
