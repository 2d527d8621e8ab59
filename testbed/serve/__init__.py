"""Pages for a browser on this machine: a fabric that is up."""
