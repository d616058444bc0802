"""How the world reaches an agent: each surface is a module or package on top of the agent's public API."""
