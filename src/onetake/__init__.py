"""onetake: record an agent once, replay it forever without a key, and see every change it makes.

The rooms, from the top; each imports only from those below it:

    cli, pytest_plugin    commands and pytest items
    testing      strategies and invariants for property-based tests, a fuzzer for any agent; needs Hypothesis
    snapshot     the suite: drive an agent as a process, compare what it did, record and refresh
    gateway      the model endpoint for agents that are not ours: real, recorded or scripted
    surfaces     how the world reaches an agent: acp, headless
    app          compose a running agent from YAML
    toolkit      the tools themselves: bash, delegation
    replay       answer model calls from a recording, inside our own agent (for others: gateway)
    fixture      what a committed log looks like: tokens and canonical form
    agent        one conversation: inbox, loop, prompt, tool calls; and the context that plugins register with
    tools        the tool contract (the tools are in toolkit): schema, registry, guarded execution
    providers    HTTP adapters
    session      the session log: events, bytes, disk, derived history
    wire         provider wire formats, without I/O
    model        what a model says: chunks, messages, failures, assembly
    runfile, jsontext, errors    below all of them

The package itself imports nothing: start-up time of `onetake acp` is a feature, so each room is imported by
who needs it.
"""

__version__ = "0.1.0"
