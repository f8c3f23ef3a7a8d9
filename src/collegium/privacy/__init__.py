"""Differential privacy: what releases cost, what they add up to and what may be claimed.

Names are imported when first used: `import collegium` stays quick, and the core can use `collegium.privacy.claims`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collegium.privacy.accountant import calibrate as calibrate
    from collegium.privacy.accountant import claim as claim
    from collegium.privacy.accountant import delta_of as delta_of
    from collegium.privacy.accountant import epsilon_of as epsilon_of
    from collegium.privacy.accountant import laplace_multiplier as laplace_multiplier
    from collegium.privacy.accountant import noise_multiplier as noise_multiplier
    from collegium.privacy.accountant import renyi_epsilon as renyi_epsilon
    from collegium.privacy.budget import Budget as Budget
    from collegium.privacy.budget import spent as spent
    from collegium.privacy.claims import Account as Account
    from collegium.privacy.claims import Charge as Charge
    from collegium.privacy.claims import PrivacyClaim as PrivacyClaim
    from collegium.privacy.claims import add_up as add_up
    from collegium.privacy.composition import classic_gaussian_sigma as classic_gaussian_sigma
    from collegium.privacy.composition import compose as compose
    from collegium.privacy.composition import gaussian_delta as gaussian_delta
    from collegium.privacy.composition import gaussian_epsilon as gaussian_epsilon
    from collegium.privacy.composition import gaussian_sigma as gaussian_sigma
    from collegium.privacy.composition import per_round as per_round
    from collegium.privacy.composition import randomized_response_delta as randomized_response_delta
    from collegium.privacy.events import Event as Event
    from collegium.privacy.events import Gaussian as Gaussian
    from collegium.privacy.events import Laplace as Laplace
    from collegium.privacy.events import Pure as Pure
    from collegium.privacy.events import RandomizedResponse as RandomizedResponse
    from collegium.privacy.events import Renyi as Renyi
    from collegium.privacy.events import SampledGaussian as SampledGaussian
    from collegium.privacy.noise import Noise as Noise
    from collegium.privacy.noise import noise_source as noise_source
    from collegium.privacy.pate import fedkt_epsilon as fedkt_epsilon
    from collegium.privacy.pate import fedkt_moment as fedkt_moment
    from collegium.privacy.pate import gnmax_log_error as gnmax_log_error
    from collegium.privacy.pate import gnmax_renyi as gnmax_renyi
    from collegium.privacy.pate import noisy_max_error as noisy_max_error
    from collegium.privacy.xor import xor_claimed_epsilon as xor_claimed_epsilon
    from collegium.privacy.xor import xor_epsilon as xor_epsilon

_HOMES = {
    "accountant": [
        "calibrate", "claim", "delta_of", "epsilon_of", "laplace_multiplier", "noise_multiplier", "renyi_epsilon",
    ],
    "budget": ["Budget", "spent"],
    "claims": ["Account", "Charge", "PrivacyClaim", "add_up"],
    "composition": [
        "classic_gaussian_sigma", "compose", "gaussian_delta", "gaussian_epsilon", "gaussian_sigma", "per_round",
        "randomized_response_delta",
    ],
    "events": ["Event", "Gaussian", "Laplace", "Pure", "RandomizedResponse", "Renyi", "SampledGaussian"],
    "noise": ["Noise", "noise_source"],
    "pate": ["fedkt_epsilon", "fedkt_moment", "gnmax_renyi", "gnmax_log_error", "noisy_max_error"],
    "xor": ["xor_claimed_epsilon", "xor_epsilon"],
}  # fmt: skip
_HOME_OF = {name: f"collegium.privacy.{module}" for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'collegium.privacy' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
