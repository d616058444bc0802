"""Sub-agents: tools by which a model has a task done by a session of its own, and what came of it."""
