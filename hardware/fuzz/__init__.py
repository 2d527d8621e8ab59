"""Fuzzers of what fabricd reads from outside: the worker protocol, the control protocol, frames."""
