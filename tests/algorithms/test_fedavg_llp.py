"""FedAvgLLP: each site by itself, on the net's features."""

from __future__ import annotations

import numpy as np
from tests.algorithms.few_labels import X, net, run, sites

import collegium as cg


def test_labels_are_those_of_local_propagation_on_the_common_nets_features() -> None:
    first = run(cg.FedAvg(rounds=1)).global_model.estimator.get_weights()
    found = run(cg.FedAvgLLP(rounds=1, local_steps=1, start=first, propagation=cg.LocalLabelPropagation(k=4)))
    trained = net().initialize(X, np.arange(10)).set_weights(first)
    embedded = [
        cg.Site(s.name, trained.embed(s.X), s.y, unlabeled=trained.embed(s.unlabeled)) for s in sites(learner=net())
    ]
    alone = cg.run(cg.LocalLabelPropagation(k=4), sites=embedded, classes=range(10))
    assert all(np.array_equal(found.labels[p], alone.labels[p]) for p in "abcd")


def test_it_always_sees_the_features_of_the_net() -> None:
    assert cg.FedAvgLLP().propagation == cg.LocalLabelPropagation(embed=True)
