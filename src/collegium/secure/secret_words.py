"""Secret words: sites spell values that many records have, and the coordinator cannot tell who spells which.

Masks, drop-outs and what may be opened are those of `collegium.secure.secret_votes`; the words are those of
`collegium.privacy.mechanisms.blinding`, whose sum modulo 2^64 is the same whoever has a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collegium.core.releases import BlindedSpellings, Release
from collegium.errors import ConfigError
from collegium.secure import secret_votes
from collegium.secure.messages import MaskedWords
from collegium.secure.secret_votes import SecretVotes
from collegium.wire.orders import Mask

if TYPE_CHECKING:
    from collegium.core.federation import Federation
    from collegium.core.site import ActiveSite
    from collegium.core.steps import Order

PROTOCOL: Final = "secret_words"
STEPS: Final = secret_votes.STEPS


class WordSum(NamedTuple):
    """What so many sites have spelled together, a row of words for every place."""

    words: NDArray[np.uint64]
    sites: int


class SecretWords(SecretVotes):
    """This way of masking: at a site's gate, and at the coordinator. An order names its `places` and `width`."""

    protocol: ClassVar[str] = PROTOCOL
    what: ClassVar[str] = "Secret words"
    message: ClassVar[type[Any]] = MaskedWords
    most: ClassVar[int | None] = None

    def numbers(self, release: Release) -> NDArray[Any]:
        if not isinstance(release, BlindedSpellings):
            raise ConfigError(f"{release.kind} are not blinded words.")
        return release.words

    def require_fit(self, site: ActiveSite, mask: Mask, release: Release) -> None:
        """Any model will do: what is spelled does not follow from one."""

    def shape(self, fed: Federation, order: Order[Any]) -> tuple[int, ...]:
        return (int(order.args["places"]) * (1 + int(order.args["width"])),)

    def summed(self, counts: NDArray[Any], order: Order[Any], parties: Sequence[str]) -> WordSum:
        return WordSum(counts.reshape(int(order.args["places"]), -1), len(parties))
