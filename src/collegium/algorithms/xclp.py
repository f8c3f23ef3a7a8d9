"""XCLP: cross-client label propagation.

Scott, Yeo, Lampert: "Cross-client Label Propagation for Transductive and Semi-Supervised Federated Learning", TMLR
2023, Algorithm 1. The paper's lines are named beside ours. Sites with labeled and unlabeled points, or only one kind
of them, get labels and confidences of their unlabeled points, which nobody else sees. To predict new points, pass
them as a site's `unlabeled`.

Reproduces: the label propagation of Table 6; benchmarks/xclp.py has the numbers.

Deviations from the paper and its code, all on purpose:

- The cryptography is real, and the paper's protocols are corrected: see `collegium.protocols`.
- A site tells the k nearest of each of its points, not all distances within the site: the graph is the same.
- Only the labeled columns of S are solved for. Negative similarities are cut off; isolated points are allowed.
- Similarities are raised to a `power` (paper: 1, code: 3), and classes divided by the total influence of their labels
  (`balance`; paper: "none", code: "count"): both were measured to be better. Totals are summed with the rows, unseen.
- A point that no label reaches gets the class with the largest total, with confidence 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.algorithms.local_label_propagation import Propagation
from collegium.core import ActiveSite, Federation, Nothing, Steps, step
from collegium.core.settings import PositiveInt
from collegium.errors import QuorumLost
from collegium.graphs import influence, joint, label_points
from collegium.protocols import hamming, row_sums
from collegium.protocols.hamming import Backend
from collegium.protocols.masks import Mode
from collegium.secure import acquaintance, distances, sketches
from collegium.secure.acquaintance import Circle, leave
from collegium.secure.distances import secure_distances, talk
from collegium.secure.row_sums import finish, offer_rows, secure_row_sums, submit
from collegium.secure.sketches import ask_sketches, encode, points_of, show


@step
def spread(site: ActiveSite, S: Any, rows: dict[str, int], balance: str) -> Nothing:
    """12-, 13-CS: what my labels say of everybody's points, S_L Y_L, and, in a row of its own, of each class in all."""
    Y = np.eye(site.n_classes)[site.data.codes]
    Z = S @ Y
    total = Z.sum(axis=0) if balance == "influence" else Y.sum(axis=0)
    parts = np.split(Z, np.cumsum(list(rows.values()))[:-1])
    offer_rows(site, {party: np.vstack([part, total]) for party, part in zip(rows, parts, strict=True)})
    return Nothing()


@step
def adopt(
    site: ActiveSite, circle: str, round_name: str, answer: Any, balance: str, relative: bool, embed: bool
) -> Nothing:
    """14-XS to 16-CS: labels and confidences of my unlabeled points. They stay here."""
    Z = finish(site, round_name, answer)
    leave(site, circle)
    if embed:  # Rows as they are have been looked at before the run.
        Z[:-1][~points_of(site, embed).any(axis=1)] = 0.0  # without a direction: a random sketch says nothing
    noise = 0.0 if answer is None else row_sums.largest_error(len(answer["from"]) + 1)
    found = label_points(Z[len(site.data) : -1], Z[-1], balanced=balance != "none", relative=relative, noise=noise)
    site.keep_labels(found)
    return Nothing()


def _scale(S: NDArray[np.float64], sites: int) -> float:
    """The power of two that makes S about as large as sums over so many sites can hold.

    With a small alpha, far points are then not rounded to 0. Labels and confidences come from shares, which stay.
    """
    return float(2.0 ** np.floor(np.log2(row_sums.largest_summand(sites) / (2 * S.sum()))))


@dataclass(frozen=True)
class XCLP(Propagation):
    """Sites label their points by those of all sites, which nobody shows to anybody."""

    asks_for: ClassVar[Steps] = (
        *acquaintance.STEPS,
        *sketches.SEED_STEPS,
        *(encode, show),
        *distances.STEPS,
        *(spread, submit, adopt),
    )
    fresh_secrets: ClassVar[bool] = True
    bits: PositiveInt | None = 4096
    """L: length of the sketches (None: exact similarities, in a simulation only)."""
    hamming: Backend = "ot"
    """How distances are computed: ot, paillier, bfv, masked, or plain (in a simulation only)."""
    sums: Mode = "pairwise"
    """How rows are summed: pairwise, or recipient (no second round when a site drops out)."""
    relative_confidence: bool = False
    """Divide each site's confidences by its largest (as the authors' code does)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits is not None:
            hamming.check_length(type(self).__name__, self.hamming, self.bits)
        # Points or sketches in the clear never leave a real site.
        object.__setattr__(self, "simulation_only", self.bits is None or self.hamming == "plain")

    def unasked(self) -> Steps:
        if not self.simulation_only:
            return (show,)  # points or sketches in the clear
        return (encode, *distances.STEPS, *(sketches.SEED_STEPS if self.bits is None else ()))

    def coordinate(self, fed: Federation) -> None:
        for _ in fed.rounds(1):
            self.propagate(fed)

    def propagate(self, fed: Federation, parties: Sequence[str] | None = None) -> None:
        """Algorithm 1 over these parties: each then has labels and confidences of its unlabeled points."""
        circle = f"{fed.run} xclp {fed.round}"
        here = Circle(fed, circle).gather(fed.parties if parties is None else parties)  # 1-XS
        clear = self.bits is None or self.hamming == "plain"
        told = ask_sketches(fed, circle, here, self.bits, self.k, embed=self.embed, in_the_clear=clear)  # 1-XS to 4-CS
        H: Mapping[tuple[str, str], NDArray[np.int64]] = {}
        if self.bits is not None and not clear:
            here, H = secure_distances(fed, circle, self.hamming, self.bits, {p: len(told[p]) for p in told})  # 5-XS
            told = {p: told[p] for p in here}
        labelled = [told[p].labelled for p in told]
        if not any(labelled):
            raise QuorumLost("No participating site has labeled points: there is nothing to propagate.")
        sizes = {p: len(told[p]) for p in told}
        columns = [r.start + np.arange(n) for r, n in zip(joint.numbered(sizes).values(), labelled, strict=True)]
        with fed.timed("solve"):
            if self.bits is None or clear:
                near = joint.from_points(told, self.bits, self.k)  # 6-, 7-SS
            else:
                near = joint.from_distances(told, H, self.bits, self.k)  # 6-, 7-SS
            S = influence(near.graph(self.power), np.concatenate(columns), self.alpha)  # 8- to 10-SS
        S *= _scale(S, len(told))
        own = np.split(S, np.cumsum(labelled)[:-1], axis=1)  # 11-, 12-CS
        fed.tell({p: spread(part, sizes, self.balance) for p, part in zip(told, own, strict=True)})  # 13-CS
        summed = {p: size + 1 for p, size in sizes.items()}
        last, answers = secure_row_sums(fed, circle, self.sums, summed, fed.n_classes)  # 14-XS
        settings = self.balance, self.relative_confidence, self.embed
        fed.tell({p: adopt(circle, last, answer, *settings) for p, answer in answers.items()})  # 15-, 16-CS
        fed.flush()

    def fixed(self, public_size: int) -> Mapping[str, Mapping[str, Any]]:
        return {
            encode.name: {"bits": self.bits, "k": self.k, "embed": self.embed},
            talk.name: {"backend": self.hamming},
            submit.name: {"mode": self.sums},
        }

    def learns(self) -> dict[str, str]:
        backend = hamming.named("plain" if self.bits is None else self.hamming)
        totals = "the total influence of the labels" if self.balance == "influence" else "the number of labels"
        return {
            "coordinator": "how many points each site has, which have labels, and the k nearest within its site",
            "site": "how far its own labels reach to every point; labels and confidences of its own points; how many "
            f"points each other site has; {totals} of each class, over all sites",
            "coordinator and one site": "the labels of all labeled points of all sites: the one knows S, the other "
            "its rows of S Y, and together they solve for Y",
            **{f"{who}, from distances": what for who, what in backend.LEARNS.items()},
            **{f"{who}, from row sums": what for who, what in row_sums.LEARNS[self.sums].items()},
        }
