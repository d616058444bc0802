"""Replay: put a recording where the model stood, session by session, and notice when it does not fit."""
