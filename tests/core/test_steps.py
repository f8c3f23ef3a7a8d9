from __future__ import annotations

import pytest

from collegium.core import ActiveSite, HardLabels, Nothing, Order, step
from collegium.core.steps import INSTALLED


@step
def example(site: ActiveSite, a: int, b: str = "x") -> Nothing:
    """Does nothing."""
    raise AssertionError("calling a step must not run it")


def test_calling_a_step_writes_an_order_and_runs_nothing():
    order = example(1)
    assert isinstance(order, Order)
    assert order.step == "test_steps.example"
    assert order.args == {"a": 1, "b": "x"}
    assert order.digest == INSTALLED["test_steps.example"].digest
    assert example.__doc__ == "Does nothing."


def test_wrong_arguments_are_found_where_the_order_is_written():
    with pytest.raises(TypeError):
        example()
    with pytest.raises(TypeError):
        example(1, c=2)


def test_a_step_must_say_what_it_releases():
    def silent(site):
        return Nothing()

    with pytest.raises(TypeError, match="annotate"):
        step(silent)


def test_a_name_belongs_to_one_module():
    def example(site: ActiveSite) -> Nothing:
        return Nothing()

    example.__module__ = "elsewhere.test_steps"
    with pytest.raises(TypeError, match="already installed"):
        step(example)


def test_the_declared_kind_is_known_and_must_be_a_release():
    assert example.releases is Nothing

    def wrong(site: ActiveSite) -> int:
        return 1

    with pytest.raises(TypeError, match="not a kind of Release"):
        step(wrong)


def test_the_digest_changes_with_the_code_beside_the_step(tmp_path, monkeypatch):
    text = (
        "from collegium.core import ActiveSite, Nothing, step\ndef helper(): return {}\n"
        "@step\ndef go(site: ActiveSite) -> Nothing:\n    return Nothing()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    digests = []
    for number, value in enumerate((1, 2)):
        (tmp_path / f"plugin{number}.py").write_text(text.format(value))
        module = __import__(f"plugin{number}")
        digests.append(module.go.digest)
        del INSTALLED[module.go.name]
    assert digests[0] != digests[1]


def test_the_papers_steps_are_installed():
    import collegium.algorithms.fedct  # noqa: F401

    assert INSTALLED["fedct.label"].releases is HardLabels
