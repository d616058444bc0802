"""Print the table of the seeded faults: what it takes to find each."""

from __future__ import annotations

from tests.faults.table import all_faults, find


def main() -> None:
    """Find every fault, shrink the case, and print a row for each."""
    print(f"{'room':9}{'fault':28}{'invariant':26}{'found in':>10}{'size':>6}  smallest case")
    for room, fault in all_faults():
        found, smallest = find(room, fault), find(room, fault, shrink=True)
        if found is None or smallest is None:
            print(f"{room:9}{fault.name:28}NOT FOUND: {fault.story}")
        else:
            facts = f"{smallest.invariant:26}{found.seconds:8.2f} s{len(smallest.case):6}"
            print(f"{room:9}{fault.name:28}{facts}  {smallest.case[:80]}")


if __name__ == "__main__":
    main()
