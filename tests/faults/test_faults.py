"""Every bug of the list is found by the properties, within what `make test` spends on them."""

from __future__ import annotations

import pytest

from tests.faults.fault import Fault
from tests.faults.table import Found, all_faults, find

FAULTS = all_faults()


@pytest.mark.parametrize(("room", "fault"), FAULTS, ids=[f"{room}-{fault.name}" for room, fault in FAULTS])
def test_the_fault_is_found(room: str, fault: Fault) -> None:
    found = find(room, fault)
    assert isinstance(found, Found), f"{room}: nobody noticed that {fault.story}"


def test_there_are_enough_of_them_and_no_two_of_one_name() -> None:
    names = [fault.name for _, fault in FAULTS]
    assert len(names) >= 25 and len(set(names)) == len(names)
