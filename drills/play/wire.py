"""What a drill's server and its clients say to each other: one JSON object a line, answered in order.

A request has `op` (command, ticket, state, transcript, complete, interrupt, close) with its arguments, and in a sealed
drill the player's `token`. An answer has `brought`, or `error` {what, where, hint}. `interrupt` has no answer of its
own: the command that goes on answers sooner.

The instructor has a socket of his own. Every request there has his `token`; `op` is command, watch (`since`: the number
of the first row of the transcript), complete, state or fork. What tells the truth is answered there and nowhere else.
"""

from __future__ import annotations

SOCKET = "drill.sock"
INSTRUCTOR_SOCKET = "instructor.sock"
