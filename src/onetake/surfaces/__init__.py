"""How the world reaches an agent: each surface is a package of its own on top of the agent's public API."""
