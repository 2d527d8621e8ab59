"""How the suite draws at random, and Ctrl-C for the programs that tests start.

What hypothesis draws is the same in every run, so that the suite does not hang on luck. `./setup.sh explore` draws
afresh (RAILBED_EXPLORE=1); what it finds becomes an @example of its test.
"""

from __future__ import annotations

import os
import signal

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, database=None, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("explore" if os.environ.get("RAILBED_EXPLORE") else "fixed")

# A shell starts background jobs with SIGINT ignored, which a child inherits; a handler of our own it does not.
signal.signal(signal.SIGINT, signal.default_int_handler)
