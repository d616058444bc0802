"""What is done with a run, in three modes: `judge` it (replay), `record` or `refresh` it.

A recording goes through `asking` (is it futile?), `record`, `commit` (do the guards object?) and `write`.
`migrate` is a command of its own that rewrites old layouts.
"""
