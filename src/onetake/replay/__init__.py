"""Replay: put a recording where the model stood, for every session of a scenario, and notice when it does not fit."""
