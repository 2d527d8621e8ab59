"""The points of a sweep, several at a time: on this machine, and on others by SSH.

On this machine alone threads hand the points out (engine.py), else Dask does (cluster.py). On each machine they run in
processes of their own (processes.py, point.py).
"""
