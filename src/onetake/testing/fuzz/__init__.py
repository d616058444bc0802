"""The fuzzer behind `onetake fuzz`: random scripts against any ACP agent, whose model is a scripted one.

Bugs of agents live in interleavings: a cancel while a tool runs, an answer after the answer, a session that
hears what another one was told. `fuzz` draws scripts of prompts, cancels, permissions and restarts, with
model answers that are malformed, break off or hang, watches what every client relies on (`CHECKS`), and
shrinks what breaks it.

`onetake.testing.fuzz.campaign` has `fuzz`, and is the one module here that, with `draw`, needs Hypothesis.
"""
