"""Numbers that are copied while Python goes on."""

from __future__ import annotations

import pytest
import torch

from collegium.learners.torch.on_their_way import OnTheirWay

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
def test_it_has_what_was_there_whatever_comes_next(device: str) -> None:
    values = torch.arange(3.0, device=device)
    copied = OnTheirWay(values)
    values.zero_()
    assert copied().tolist() == [0, 1, 2]
