"""Weights and soft labels: what noise must not break, and what does not leave a site."""

from __future__ import annotations

import numpy as np
import pytest

import collegium as cg
from collegium.core.public_set import PublicSet
from collegium.core.site import ActiveSite
from collegium.core.weights import Weights, average, different_nets, same_shapes, with_true_variances
from collegium.errors import ConfigError, Refused

ROWS = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


def test_running_variances_are_raised_to_nought_and_nothing_else_changes():
    arrays = {name: np.float32([-1.0, 2.0]) for name in ("0.running_var", "0.running_mean", "running_var", "1.weight")}
    mended = with_true_variances(arrays)
    for name, value in mended.items():
        expected = [0.0, 2.0] if name.endswith("running_var") else [-1.0, 2.0]
        assert value.tolist() == expected
        assert value.dtype == np.float32


@pytest.mark.parametrize("rows", [3, 3000])  # at once, and in threads
def test_an_average_is_added_up_in_the_order_of_the_parties_bit_for_bit(rows):
    rng = np.random.default_rng(0)
    shapes = {"weight": (rows, 257), "bias": (257,), "scale": ()}
    parts = {
        party: Weights({name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}, 1)
        for party in "abcd"
    }
    shares = {"a": 1.0, "b": 2.0, "c": 0.3, "d": 7.0}
    mean = average(parts, shares)
    for name, shape in shapes.items():
        expected = np.zeros(shape)
        for party, part in parts.items():
            expected = expected + part.arrays[name].astype(np.float64) * (shares[party] / 10.3)
        np.testing.assert_array_equal(mean[name], expected.astype(np.float32))
        assert (mean[name].shape, mean[name].dtype) == (shape, np.float32)


def test_nets_of_other_shapes_are_an_error_that_names_both_sites():
    assert "'a' and 'c' differ" in str(different_nets("a", "c"))
    with pytest.raises(ConfigError, match="'a' and 'c' differ"):
        same_shapes({"a": {"w": np.zeros(2)}, "b": {"w": np.zeros(2)}, "c": {"w": np.zeros(3)}})


def test_what_a_net_that_has_diverged_says_does_not_leave():
    site = cg.Site("a", ROWS, np.arange(6) % 2, learner=cg.TorchClassifier("linear"))
    active = ActiveSite(site, np.arange(2), PublicSet(ROWS), 0, simulation=True)
    asked = {
        "logits": lambda: active.logits(np.arange(3)),
        "probabilities": lambda: active.probabilities(active.public),
    }
    for value, refusing in ((1.0, set()), (1e30, {"logits"}), (np.nan, {"logits", "probabilities"})):
        active.load({"1.weight": np.full((2, 4), value, np.float32), "1.bias": np.zeros(2, np.float32)})
        for name, ask in asked.items():
            if name not in refusing:
                assert np.isfinite(ask()).all()
                continue
            with pytest.raises(Refused, match="has diverged") as refused:
                ask()
            assert refused.value.code == "diverged"
