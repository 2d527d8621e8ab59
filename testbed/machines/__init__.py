"""The points of a sweep, several at a time: on this machine, and on others by SSH.

Threads hand them out to places (engine.py): to this machine, and to others (remote.py), where a worker runs them
(worker.py). On each they run in processes of their own (processes.py, point.py).
"""
