"""What a suite says: `suite.toml`, the scenarios' scripts, which are chosen, and how new ones begin."""
