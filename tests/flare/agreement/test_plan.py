"""What an order may differ in from what a plan's method makes of it: nothing but rounding."""

from __future__ import annotations

from typing import Any

import pytest

import collegium as cg
from collegium.flare.agreement.plan import same_setting


@pytest.mark.parametrize(
    ("asked", "agreed", "same"),
    [
        (0.1, 0.1 * (1 + 1e-12), True),
        (0.1, 0.1001, False),
        (1, 1.0, True),
        (True, 1.0, False),
        (True, 1, False),
        (None, 1.0, False),
        (0, None, False),
        ("ot", "ot", True),
        ("ot", "masked", False),
        ({"name": "a", "gamma": 0.1}, {"gamma": 0.1, "name": "a"}, True),
        ({"name": "a"}, {"gamma": 0.1, "name": "a"}, False),
        ([1, 2], (1, 2), True),
        ([1, 2], [1], False),
        (float("nan"), 0.5, False),
    ],
)
def test_the_same_setting(asked: Any, agreed: Any, same: bool) -> None:
    assert same_setting(asked, agreed) is same


@pytest.mark.parametrize(
    ("algorithm", "never_asked"),
    [
        (cg.FedKT(), "fedkt.send"),
        (cg.FedKT(share="models", student=cg.TorchClassifier()), "fedkt.vote"),
        (cg.DPFedAvg(variant="clip_parameters"), "fedavg.update"),
        (cg.DPFedAvg(), "dp_fedavg.noisy_update"),
    ],
)
def test_what_a_method_never_asks_for(algorithm: cg.Algorithm, never_asked: str) -> None:
    assert never_asked in {step.name for step in type(algorithm).asks_for}
    assert never_asked not in algorithm.all_steps()


def test_noise_at_a_site_is_fixed() -> None:
    noisy = cg.DPFedAvg(variant="clip_parameters", clip=2, noise=0.5, delta=1e-6).fixed(0)
    assert noisy["dp_fedavg.noisy_update"] == {"clip": 2, "sigma": 0.5, "delta": 1e-6}
    scored = {"ridge": 0.2, "epsilon": 0.3, "delta": 1e-5, "loss": "mean"}
    assert cg.FedAUX(epsilon=0.3, ridge=0.2).fixed(0)["fedaux.score"] == scored
    assert cg.FedAvgXCLP(xclp=cg.XCLP(hamming="bfv")).fixed(0)["distances.talk"] == {"backend": "bfv"}
