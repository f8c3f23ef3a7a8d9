"""FedAvgPseudo: labels are the net's own, and count by how sure it is."""

from __future__ import annotations

import numpy as np
from tests.algorithms.few_labels import X, net, run, sites

import collegium as cg


def test_labels_and_confidences_are_those_of_the_common_net_before_the_update() -> None:
    first = run(cg.FedAvg(rounds=2, local_epochs=20)).global_model.estimator.get_weights()
    found = run(cg.FedAvgPseudo(rounds=1, local_steps=1, start=first))
    trained = net().initialize(X, np.arange(10)).set_weights(first)
    for site in sites():
        p = trained.predict_proba(site.unlabeled)
        assert np.array_equal(found.labels[site.name], p.argmax(axis=1))
        confidences = 1 + (p * np.log(p)).sum(axis=1) / np.log(10)
        np.testing.assert_allclose(found.confidences[site.name], confidences, atol=1e-5)


def test_labels_below_the_threshold_do_not_count_and_others_may_count_alike() -> None:
    first = run(cg.FedAvg(rounds=2, local_epochs=20)).global_model.estimator.get_weights()
    trained = net().initialize(X, np.arange(10)).set_weights(first)
    found = run(cg.FedAvgPseudo(rounds=1, local_steps=1, start=first, threshold=0.2, weighted=False))
    for site in sites():
        sure = trained.predict_proba(site.unlabeled).max(axis=1) >= 0.2
        assert 0 < sure.mean() < 1
        assert np.array_equal(found.confidences[site.name], sure.astype(float))
