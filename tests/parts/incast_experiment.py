"""A small incast as an experiment file, to sweep over."""

INCAST = """
name: little
fabric:
  topology: {star: {hosts: 3}}
  switch: {buffer: 2MB, ecn: {kmin: 50KB, kmax: 50KB}}
transport: {cc: dcqcn}
workload:
  - load: {pattern: burst, to: 0, size: 1MB, flows: 1}
"""
