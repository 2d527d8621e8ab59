"""The command line, and all that carries out an experiment on this machine."""

__version__ = "0.1.0"
