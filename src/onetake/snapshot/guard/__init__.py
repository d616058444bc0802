"""What must never pass silently: the registry of guards, those that need no process, and the secret check.

`static` runs before a replay and in `check`, `contents` also over files that are about to be written, the
rest of `guards` after a full run. A new guard has its id in `guards`, its check in `contents` or `static`,
and a broken case in tests/snapshot/test_guards.py.
"""
