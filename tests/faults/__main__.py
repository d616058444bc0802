"""Print the table of the seeded faults: what it takes to find each."""

from __future__ import annotations

from tests.faults.table import all_faults, find


def main() -> None:
    """Find every fault with shrinking, and print a row for each."""
    print(f"{'room':10}{'fault':32}{'seconds':>8}{'size':>7}  what was said")
    for room, fault in all_faults():
        found = find(room, fault, shrink=True)
        if found is None:
            print(f"{room:10}{fault.name:32}   NOT FOUND")
        else:
            print(f"{room:10}{fault.name:32}{found.seconds:8.2f}{found.size:7}  {found.message[:90]}")


if __name__ == "__main__":
    main()
