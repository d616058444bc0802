"""The model endpoint for agents that are not ours, and for tests: a small server on the wire codecs.

    server, http                       the endpoints, and HTTP on loopback
    run, exchange                      one agent's run and its files; one call on its way
    conversations, conversation, alike    whom a request continues, and the log that it amounts to
    upstream, fidelity                 source: the real endpoint, and what a recording could not give back
    recorded, matching                 source: a recording, answered by what is asked
    scripted, script, mock             source: a script; the same as an endpoint of its own
    answer                             an answer that is known before it is sent

Our own agent replays by itself (`onetake.replay`), where sessions are known by lineage. Of others only the
requests are known, so here a session is what its requests say.
"""
