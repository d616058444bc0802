"""Property-based tests for whoever builds an agent: the cases, and what must hold for them.

Two ideas. **Strategies** (`onetake.testing.strategies`) draw cases that are realistic and adversarial:
chunk streams, session logs, schedules, bytes of a wire. **Invariants** (`onetake.testing.invariants`)
judge a subject that you pass in, your assembler or your decoder or your agent's log, and raise
`InvariantViolation` with what was expected and what came. `onetake fuzz` puts both together against
any ACP agent. Needs the extra `onetake[testing]`; docs/property-testing.md shows how.
"""
