"""DP-FedAvg: federated averaging with differential privacy for whole sites.

McMahan, Ramage, Talwar, Zhang: "Learning Differentially Private Recurrent Language Models", ICLR 2018, arXiv
1710.06963, Algorithm 1 with flat clipping and a fixed denominator. Geyer, Klein, Nabi, arXiv 1712.07557.

Who adds the noise:

- ``variant="clip_updates"`` (default): the COORDINATOR. It sees every site's weights as they are and must be trusted.
  What it makes public, the model after every round, is differentially private for whole sites (unit "party"). What the
  sites send is not, and `run.privacy` says so for each of them.
- ``variant="clip_parameters"`` (AIMHI's baseline, after Wei et al. 2020): each SITE. It clips its parameters and puts
  noise on them before anything leaves. Nobody must be trusted, and almost nothing is protected: AIMHI's setting
  (``clip=2, noise=.01, rounds=150``) is epsilon 1.20e7 at delta 1e-5.

Deviations from the paper, on purpose: every site counts alike (w_k = 1); the coordinator clips, so that the claim does
not stand on what sites do; a site that does not answer counts as one that changed nothing; running variances that the
noise made negative become 0; a simulation's noise is drawn from the run's seed, and the claim says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from collegium.algorithms._averaging import Averaging, average_or, common_start, receive, updates
from collegium.algorithms.fedavg import update
from collegium.core import ActiveSite, Federation, Steps, Weights, step
from collegium.core.settings import OpenProbability, PositiveFloat
from collegium.core.weights import Arrays, clip, with_noise, with_true_variances
from collegium.errors import ConfigError
from collegium.privacy import accountant, events
from collegium.privacy.claims import Charge, PrivacyClaim

Variant = Literal["clip_updates", "clip_parameters"]
Neighbours = Literal["add_remove", "replace"]
COVERED = "the model of every round: the coordinator adds the noise, and sees what sites send without any"
TRUSTED = "the coordinator is trusted with the sites' weights, and the number of sites is no secret"


@step
def noisy_update(
    site: ActiveSite, w: Arrays, epochs: int, steps: int | None, clip: float, sigma: float, delta: float
) -> Weights:
    """AIMHI, section 4.3: w_i / max(1, |w_i| / C) + N(0, sigma^2)."""
    site.load(w)
    noisy = site.train_net_privately(
        epochs, steps, bound=clip, sigma=sigma, charge=parameter_charge(clip, sigma, delta)
    )
    return Weights(noisy, 1)  # how many records there are is a secret


def parameter_charge(clip: float, sigma: float, delta: float) -> Charge:
    """Whatever a site's data is, its clipped parameters lie in a ball of radius C: any two differ by 2C at most."""
    return Charge((events.Gaussian(1, sigma / (2 * clip)),), unit="party", relation="replace", delta=delta)


@dataclass(frozen=True)
class DPFedAvg(Averaging):
    """FedAvg with clipping, Gaussian noise and its true claim."""

    asks_for: ClassVar[Steps] = (update, noisy_update, receive)
    clip: PositiveFloat = 1.0
    """S: the largest Euclidean norm of a site's update (of its parameters, in the other variant)."""
    noise: PositiveFloat = 1.0
    """z: the noise on the sum of updates, over its sensitivity. For clip_parameters: sigma, the noise itself."""
    delta: OpenProbability = 1e-5
    """At which epsilon is stated."""
    relation: Neighbours | None = None
    """Adding or removing a site (the default), or replacing one: sensitivity S or 2S, and as much more noise."""
    variant: Variant = "clip_updates"
    """What is clipped, and who adds the noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        me = type(self).__name__
        at_sites = self.variant == "clip_parameters"
        if self.relation is None:
            object.__setattr__(self, "relation", "replace" if at_sites else "add_remove")
        if at_sites and self.relation != "replace":
            raise ConfigError(
                f"{me}: a site that adds the noise itself cannot hide that it is there: relation='replace'."
            )
        if self.participation < 1 and self.relation == "replace" and not at_sites:
            raise ConfigError(f"{me}: sites that are drawn need relation='add_remove': its accounting covers them.")

    def unasked(self) -> Steps:
        return (noisy_update,) if self.variant == "clip_updates" else (update,)

    def coordinate(self, fed: Federation) -> None:
        like, w = common_start(fed, self.start)
        for _ in fed.rounds(self.rounds):
            w = self._noisy_round(fed, w) if self.variant == "clip_updates" else self._round_of_noisy_sites(fed, w)
            fed.publish(w, like)
        fed.tell(receive(w))

    def _noisy_round(self, fed: Federation, w: Arrays) -> Arrays:
        drawn = fed.noise.happens(self.participation, len(fed.parties))  # C_t: each site with probability q
        C = [party for party, asked in zip(fed.parties, drawn, strict=True) if asked]
        order = update(w, self.local_epochs, self.local_steps)
        # Whoever answers: a run that ended here would tell who was drawn.
        parts = updates(fed, dict.fromkeys(C, order), dict.fromkeys(C, w), always=True) if C else {}
        total = {name: np.zeros(value.shape) for name, value in w.items()}
        for part in parts.values():
            change = clip({name: part.arrays[name] - w[name] for name in w}, self.clip)  # FlatClip(Delta_k)
            total = {name: total[name] + change[name] for name in w}
        noisy = with_noise(total, self.noise * self.sensitivity, self.sensitivity, fed.noise)
        fed.charge(COVERED, self._charge)
        denominator = np.float32(self.participation * len(fed.parties))  # q W, whoever answered
        return with_true_variances({name: w[name] + noisy[name] / denominator for name in w})

    def _round_of_noisy_sites(self, fed: Federation, w: Arrays) -> Arrays:
        S = fed.sample(self.participation)
        order = noisy_update(w, self.local_epochs, self.local_steps, self.clip, self.noise, self.delta)
        parts = updates(fed, dict.fromkeys(S, order), dict.fromkeys(S, w), always=True)
        return average_or(w, parts, dict.fromkeys(parts, 1.0))

    @property
    def sensitivity(self) -> float:
        """By how much one site can change the sum of clipped updates."""
        return self.clip if self.relation == "add_remove" else 2 * self.clip

    @property
    def _charge(self) -> Charge:
        """What one round costs."""
        if self.variant == "clip_parameters":
            return parameter_charge(self.clip, self.noise, self.delta)
        event: events.Event = events.Gaussian(1, self.noise)
        if self.participation < 1:
            event = events.SampledGaussian(1, self.noise, self.participation)
        return Charge(
            (event,), unit="party", relation=self.relation or "add_remove", delta=self.delta, assumptions=(TRUSTED,)
        )

    def fixed(self, public_size: int) -> Mapping[str, Mapping[str, Any]]:
        return {noisy_update.name: {"clip": self.clip, "sigma": self.noise, "delta": self.delta}}

    def site_charge(self, public_size: int) -> Charge | None:
        return self._charge if self.variant == "clip_parameters" else None

    def claim(self) -> PrivacyClaim:
        """What all rounds will cost, known before they run."""
        return accountant.claim([self._charge] * self.rounds)
