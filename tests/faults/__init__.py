"""Bugs on purpose, each of which the properties must find.

A new one is a faulty variant in the module of its room, with a `Fault` in that module's `FAULTS`; nothing
else has to know of it. `python -m tests.faults` prints what it takes to find each.
"""
