"""What sites of a simulation raised, in a line each."""

from __future__ import annotations

import traceback

from collegium.runs.reasons import raised_at, reason


def entry(error: Exception) -> str:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise error from None
    except Exception:
        return f"step a.train failed:\n{traceback.format_exc()}"


def test_the_reason_is_the_line_that_names_the_exception() -> None:
    log = ["began", entry(ValueError("Input X contains NaN.\nMore:\nhttps://example.org")), entry(TypeError("later"))]
    assert reason(log) == "ValueError: Input X contains NaN."
    assert reason(["began", "refused a.train (step-denied)"]) is None
    assert reason([entry(ValueError("x" * 500))]) == f"ValueError: {'x' * 185}..."


def test_sites_with_the_same_reason_are_named_together_and_few_reasons_are_said() -> None:
    logs = {name: [entry(ValueError("no columns"))] for name in "abcd"} | {"quiet": ["began"]}
    assert str(raised_at(logs)) == "a, b, c ...: ValueError: no columns"
    assert raised_at({"quiet": ["began"]}) is None
    many = {str(number): [entry(ValueError(f"row {number}"))] for number in range(5)}
    assert str(raised_at(many)).endswith("2: ValueError: row 2; and 2 more")
