"""Compose a running agent from YAML: rows, overlays, built-in plugins, and the boot that undoes it all."""
