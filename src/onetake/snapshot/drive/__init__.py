"""Run the agent once as a process and bring home what it left: the `Harvest`. Nothing here judges.

`execute` is the way in. `registry` names the drivers; a new one subclasses `base.Driver`, as `acp` and
`headless` do. The rest is the world around the process: generated directories and environment (`env`,
`rundirs`), the process itself (`process`, `strays`), its live logs (`livelog`) and what can be waited for in
them (`conditions`, `pending`, `numbering`), and strict reading of what it wrote (`written`).
"""
