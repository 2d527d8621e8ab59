"""Ctrl-C reaches the programs that tests start, also where the whole suite runs in the background."""

from __future__ import annotations

import signal

# A shell starts background jobs with SIGINT ignored, which a child inherits; a handler of our own it does not.
signal.signal(signal.SIGINT, signal.default_int_handler)
