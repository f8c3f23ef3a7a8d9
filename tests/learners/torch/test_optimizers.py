"""Optimizers that leave PyTorch's compiler alone."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from functools import partial

import pytest
import torch
from torch import nn

from collegium.learners.torch.optimizers import OPTIMIZERS

THEIRS = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
}
TRAINS_NETS = """
import sys, numpy as np, collegium as cg
X, y = np.random.default_rng(0).normal(size=(90, 1, 16, 16)).astype(np.float32), np.arange(90) % 3
for optimizer in ("adam", "sgd"):
    for net in ("mlp", "lenet"):
        learner = cg.TorchClassifier(net, optimizer=optimizer, epochs=1)
        sites = [cg.Site(name, X[at : at + 30], y[at : at + 30], learner=learner) for at, name in ((0, "a"), (30, "b"))]
        for method in (cg.FedCT(rounds=2, steps=1), cg.FedDF(rounds=1)):
            cg.run(method, sites=sites, public=X[60:], classes=[0, 1, 2], cohort="on", progress=False)
sys.exit("torch._dynamo" in sys.modules or "sympy" in sys.modules)
"""


def test_training_nets_does_not_import_the_compiler() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", TRAINS_NETS], check=True)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_pytorch(name: str) -> None:
    torch.manual_seed(0)
    own = nn.Linear(5, 3)
    their = copy.deepcopy(own)
    pairs = [(own, OPTIMIZERS[name](own.parameters())), (their, THEIRS[name](their.parameters()))]
    x = torch.randn(4, 5)
    for step in range(6):
        for at, (net, optimizer) in enumerate(pairs):
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
            if step == 3:  # what is stored and read again goes on in the same way
                kept = pickle.loads(pickle.dumps((net, optimizer)))
                kept[1].load_state_dict(optimizer.state_dict())
                pairs[at] = kept
    (own, optimizer), (their, _) = pairs
    assert type(optimizer).__module__ == "collegium.learners.torch.optimizers"
    for mine, its in zip(own.parameters(), their.parameters(), strict=True):
        assert torch.equal(mine, its)
        assert mine.requires_grad
