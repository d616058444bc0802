"""From a harvest to the files that should be committed: one module a surface, and pins. Pure."""
