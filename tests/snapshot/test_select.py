"""`-k`: substrings with and, or, not and parentheses, as pytest reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onetake.errors import UsageError
from onetake.snapshot.suites.select import expression_for, parse_expression

NAMES = ["text-turn", "bash-tool-turn", "cancel", "cancel-tool-calls", "max-tokens"]


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ("turn", ["text-turn", "bash-tool-turn"]),
        ("TURN and not Bash", ["text-turn"]),
        ("not turn", ["cancel", "cancel-tool-calls", "max-tokens"]),
        ("cancel or max", ["cancel", "cancel-tool-calls", "max-tokens"]),
        ("tool and (cancel or text)", ["cancel-tool-calls"]),
        ("not (cancel or turn)", ["max-tokens"]),
        ("not not cancel and tool", ["cancel-tool-calls"]),
        ("max or cancel and tool", ["cancel-tool-calls", "max-tokens"]),
        ("nothing", []),
        ("(((text-turn)))", ["text-turn"]),
        ("(turn or not turn) and " * 60 + "max", ["max-tokens"]),
    ],
)
def test_expressions(expression: str, selected: list[str]) -> None:
    matches = parse_expression(expression)
    assert [name for name in NAMES if matches(name)] == selected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "the expression is empty"),
        ("  ", "the expression is empty"),
        ("and turn", "a name is missing"),
        ("(" * 3000 + "turn" + ")" * 3000, "-k: the expression is nested more than 50 deep"),
        ("not " * 3000 + "turn", "-k: the expression is nested more than 50 deep"),
        ("turn and", "a name is missing after 'turn and'"),
        ("turn or or x", "a name is missing after 'turn or'"),
        ("(turn", "a `)` is missing after '( turn'"),
        ("turn)", "unexpected ')' after 'turn'"),
        ("text turn", "unexpected 'turn' after 'text'"),
        ("not", "a name is missing after 'not'"),
        ("()", "a name is missing"),
    ],
)
def test_faults_are_named(expression: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_expression(expression)
    assert message in str(caught.value)
    assert "-k" in str(caught.value)


names = st.text(alphabet="abc-", min_size=1, max_size=4).map(lambda text: f"a{text}")


@given(st.lists(names, min_size=1, max_size=6, unique=True), st.data())
def test_an_exact_expression_selects_one_name_only(candidates: list[str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(candidates))
    matches = parse_expression(expression_for([name], candidates).strip("'"))
    assert [other for other in candidates if matches(other)] == [name]
