"""The tool contract: how a tool says what it takes, how it is registered, and how a call of it is guarded.

A model may send anything as arguments. What reaches a handler has been parsed, checked against the tool's
schema and completed with its defaults; everything else becomes an error result that tells the model what to
mend.
"""
