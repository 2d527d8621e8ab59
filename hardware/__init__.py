"""The emulated hardware: fabricd and the holder in C, how they are built, configured and spoken to."""
