"""Ranks' containers: what they may do and see (bundle, seccomp), their root file systems, and runc."""
