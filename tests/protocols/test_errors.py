from __future__ import annotations

import pickle

import pytest

from collegium.errors import CollegiumError
from collegium.protocols import ProtocolError, Reused


@pytest.mark.parametrize("kind", [ProtocolError, Reused])
def test_errors_name_the_party_even_in_another_process(kind: type[ProtocolError]) -> None:
    error = pickle.loads(pickle.dumps(kind("site1", "sent nonsense.")))
    assert type(error) is kind
    assert isinstance(error, CollegiumError)
    assert error.parties == ("site1",)
    assert str(error) == "Party 'site1' sent nonsense."


def test_several_parties_of_which_one_is_at_fault() -> None:
    error = ProtocolError(("a", "b"), "sent shares that do not fit.")
    assert error.parties == ("a", "b")
    assert str(error) == "Parties 'a', 'b' sent shares that do not fit."
