"""Replay inside our own agent: a recording where the model stood, and it is noticed when it does not fit.

Sessions are bound by lineage, since our logs record it. Agents that are not ours are answered by what they
ask: see `onetake.gateway`.
"""
