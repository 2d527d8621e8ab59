"""The points of a sweep, several at a time: on this machine, and on others by SSH.

Dask hands the points out (engine.py). On each machine they run in processes of their own (processes.py, point.py).
"""
