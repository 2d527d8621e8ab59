"""No root, no Open vSwitch, no fabricd: anywhere, in a minute."""
