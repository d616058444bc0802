"""stdout is for the protocol and for nothing else: the descriptors of a command that serves one.

The real stdout is moved to a descriptor that nobody else knows, and descriptor 1 becomes stderr, so that a
`print` in a plugin or the output of a careless tool cannot end up between two lines. In a snapshot run
descriptor 1 stays what it is: there a stray `print` has to be seen, and turns the transcript red. Nothing may
read the protocol's input either, so for all others descriptor 0 is empty.
"""

from __future__ import annotations

import io
import os
import sys


def take_descriptors() -> tuple[int, int]:
    """Keep stdin and stdout for the protocol: for all others 0 becomes /dev/null and 1 stderr."""
    from onetake.runfile import RUN_VARIABLE

    stdin, stdout = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    if RUN_VARIABLE not in os.environ:
        os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return stdin, stdout
