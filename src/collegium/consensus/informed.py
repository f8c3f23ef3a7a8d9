"""Informed: votes count by what each site knows of its own mistakes.

Ours, not in the papers. Each site tells once how its learner answers for rows of its own that it has not seen: a
confusion matrix, K x K counts of (true class, answer) by five-fold cross-validation. From these the coordinator works
out how probable each class is, given all votes on a sample. So a site that always says the same class tells nothing,
and a site that mixes two classes up is believed on the others.

- Classes that a site has no rows of are unknown to it: whatever it says there, it says as often as everywhere.
- Few counts are drawn towards the site's overall skill, its accuracy beyond chance (`smoothing`).
- How frequent classes are in the public set is estimated from the votes (EM); sites need not agree with it. Of made-up
  rows the model behind them says how probable each class is for each row: there, that is what votes are held against.
- A site is believed as far as the votes of the others bear it out: one whose answers do not fit its own counts, because
  its labels are flipped or because it lies, counts as noise (`doubt`).
- Where sites abstain, they vote only on what they know, and their counts, which are of all their rows, tell little of
  that: there, a site's vote counts as much as the site is believed, and a sample on which only sites vote that are not
  believed gets no label. Of made-up rows, what the model behind them says counts like one more vote there. Where nobody
  votes, it decides if it is sure, and if nearly all votes on other rows that it is sure of agree with it.
- Sites whose first votes are the same, sample by sample, count as one: a copy adds nothing.

The counts are made of private rows and leave each site once, as AnswerCounts; a policy can refuse them, and then the
site counts like one of unknown accuracy. With `epsilon` sites release something else, with Laplace noise: they deal
their rows by hash into `blocks`, cross-validate within each block, and add up the shares. One record changes one block,
so the sum by 2 at most. (Laplace noise on the plain counts would protect less than it claims: a record that is left out
changes the models of four folds, and with them the answers for all other rows.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from collegium.consensus.base import Consensus
from collegium.core import ActiveSite, Federation, HardLabels, Labels, Order, Sensitivity, Step, Steps, step
from collegium.core.folds import FOLDS, UNKNOWN, deal_folds, out_of_fold
from collegium.core.releases import AnswerCounts, Numbers
from collegium.core.samples import LabelledData
from collegium.core.settings import PositiveFloat, PositiveInt, Probability
from collegium.core.tally import winners
from collegium.errors import QuorumLost
from collegium.privacy.learners.assignment import teacher_of
from collegium.privacy.mechanisms.base import Mechanism
from collegium.privacy.mechanisms.laplace import Laplace
from collegium.wire import tables

Matrix = NDArray[np.float64]
Votes = NDArray[np.signedinteger[Any]]

_ITERATIONS: Final = 50
_DOUBT: Final = (10.0, 1.0)
"""Imagined votes for and against a site's counts: a few votes that do not fit are no reason for doubt."""
_BELIEVED: Final = 0.5
_LEAST: Final = 1e-6
"""A class that a model takes for less probable than this is improbable, not ruled out."""
_MOST: Final = 2 / 3
"""With this share of the sites believed, samples on which only the others vote get no label."""
_SURE: Final = 0.9
"""A class that a model takes for so probable labels a made-up row on which nobody votes ..."""
_BORNE_OUT: Final = 0.97
"""... where votes say the same on such a share of the rows that a model is so sure of. (Two rows more, one of them
wrong, are imagined: a few rows bear nothing out.)"""
_EVEN: Final = 0.05
"""What the counts weigh where votes are counted: they decide where those are about even."""
_CHANGE: Final = 2.0
"""What one record changes at most in the sum over blocks: one block's shares, which are positive and add up to 1."""
_FEW: Final = 2
"""Of a class with fewer rows than this, the models of the other folds have seen none: their answers tell nothing."""


@step
def count_answers(site: ActiveSite) -> AnswerCounts:
    """How the site's learner answers for rows of its own that it has not seen, by their true class."""
    counts = np.zeros((site.n_classes, site.n_classes), dtype=np.int64)
    if _may_be_tested(site):
        rows = site.data.opened()
        counts = _counts(site, rows, site.n_classes)
    return AnswerCounts(counts)


@step(sensitivity=Sensitivity(l1=_CHANGE, relation="add_remove"))
def add_up_blocks(site: ActiveSite, blocks: int) -> Numbers:
    """The same by blocks, each of which counts 1 in all: a record that comes or goes changes one of them."""
    total = np.zeros((site.n_classes, site.n_classes))
    if _may_be_tested(site):
        rows = site.data.opened()
        block_of = teacher_of(rows.X, blocks)
        for block in range(blocks):
            own = np.flatnonzero(block_of == block)
            counts = _counts(site, LabelledData(tables.take(rows.X, own), rows.codes[own]), site.n_classes)
            total += counts / max(1, counts.sum())
    return Numbers(total)


def _may_be_tested(site: ActiveSite) -> bool:
    """A site without a learner of its own cannot be; one with a private learner would use its rows once more."""
    return site.has_learner and not site.has_private_learner


def _counts(site: ActiveSite, rows: LabelledData, n_classes: int) -> NDArray[np.int64]:
    counts = np.zeros((n_classes, n_classes), dtype=np.int64)
    answers = out_of_fold(site, rows, deal_folds(rows.codes, FOLDS, site.rng))
    frequent = np.bincount(rows.codes, minlength=n_classes) >= _FEW
    told = (answers != UNKNOWN) & frequent[rows.codes]
    np.add.at(counts, (rows.codes[told], answers[told]), 1)
    return counts


@dataclass(frozen=True)
class Informed(Consensus):
    """The most probable class, by each site's own out-of-fold confusion matrix."""

    asks_for: ClassVar[Steps] = (count_answers, add_up_blocks)
    weighs_opinion: ClassVar[bool] = True
    smoothing: PositiveFloat = 4.0
    """Imagined rows of every class, times the number of classes, answered with the site's overall skill."""
    doubt: bool = True
    """Whether each site's counts are held against the votes of the others (False: all sites are believed)."""
    confidence: Probability = 0.0
    """A sample whose best class is less probable than this gets no label."""
    epsilon: PositiveFloat | None = None
    """What the counts may cost a site's records, with Laplace noise (None: they leave as they are, unprotected)."""
    blocks: PositiveInt = 20
    """With epsilon: over how many blocks of rows the counts are added up. Each should have 20 rows or more."""

    def unasked(self) -> Steps:
        return (add_up_blocks,) if self.epsilon is None else (count_answers,)

    def dispensable(self) -> Steps:
        return self.asks_for

    def noise_on(self, step: Step[..., Any]) -> Mechanism | None:
        return Laplace(self.epsilon) if step is add_up_blocks and self.epsilon is not None else None

    def __call__(self, fed: Federation, order: Order[HardLabels], parties: Sequence[str] | None = None) -> Labels:
        replies = fed.ask(order, parties)
        counts = self._known_counts(fed, list(replies))
        with fed.timed("consensus"):
            votes = np.stack([reply.labels.codes for reply in replies.values()])
            own = np.stack([counts.get(party, np.zeros((fed.n_classes,) * 2)) for party in replies])
            alike = _alike(fed, list(replies), votes)
            posterior, belief = self.estimate(votes, own, alike, fed.opinion)
            weights = _Groups(alike).weights
            silent = unknown = _left_open(votes, belief, weights)
            if fed.opinion is not None:  # whoever votes there is not believed
                posterior = np.where(silent[:, None], fed.opinion, posterior)
                unknown = silent & ~_known_without_votes(votes, belief, weights, fed.opinion)
            fed.confidences = posterior.max(axis=1)
            codes = np.where(fed.confidences >= self.confidence, winners(posterior.T, fed.seed), -1)
            codes[unknown] = -1
        for party, value in zip(replies, belief, strict=True):
            fed.note("belief", value, party=party)
        return Labels(codes, fed.n_classes)

    def estimate(
        self,
        votes: Votes,
        counts: Matrix,
        alike: Sequence[Hashable] | None = None,
        opinion: NDArray[np.floating[Any]] | None = None,
    ) -> tuple[Matrix, NDArray[np.float64]]:
        """The posterior of the true class per sample, and how far each site's counts are believed, 0 to 1.

        `votes` is of shape (sites, samples), -1 abstains; `counts` of shape (sites, true class, answer). Sites that
        have the same in `alike` count as one together. `opinion` says how probable each class of each sample was
        before anybody voted.
        """
        prior = None if opinion is None else np.log(np.maximum(opinion, _LEAST))
        groups = _Groups(range(len(votes)) if alike is None else alike)
        of_all = np.stack([_said(site, counts.shape[1]) for site in votes])
        claimed = np.stack([self._claim(*own) for own in zip(counts, of_all, strict=True)])
        said = of_all / of_all.sum(axis=1, keepdims=True)  # of the samples on which it does not abstain
        belief = np.ones(len(votes))
        if self.doubt:  # first by plain votes, which no false claim can sway; then by what follows from the claims
            others = _shares_of_others(votes, groups, counts.shape[1])
            belief = _beliefs(others, claimed, said, votes, np.full(len(votes), 0.9))
        posterior, others = _weighed(claimed, said, votes, belief, groups, prior)
        if self.doubt:
            belief = _beliefs(others, claimed, said, votes, belief)
            posterior, _ = _weighed(claimed, said, votes, belief, groups, prior)
        if (votes < 0).any():
            shares = _shares(votes, belief, groups, counts.shape[1], opinion)
            return (shares + _EVEN * _of_voted(posterior, votes)) / (1 + _EVEN), belief
        # what nobody voted for may be right where more is known than votes
        return _of_voted(posterior, votes) if prior is None else posterior, belief

    def _claim(self, counts: Matrix, said: NDArray[np.float64]) -> Matrix:
        """P(site says l | truth is c), row c, by its own counts."""
        skill = _skill(counts)
        rows = counts + self.smoothing * len(counts) * (skill * np.eye(len(counts)) + (1 - skill) * said)
        rows /= rows.sum(axis=1, keepdims=True)
        # A class that it does not know: there, it says what it says everywhere. A site that tells nothing at all of
        # itself may know every class.
        unknown = counts.sum(axis=1, keepdims=True) == 0
        return np.where(unknown & counts.any(), said, rows)

    def _known_counts(self, fed: Federation, parties: Sequence[str]) -> Mapping[str, Matrix]:
        """What sites have told of themselves; those that have not been asked yet are asked."""
        known: dict[str, Matrix] = fed.kept.setdefault("informed", {})
        unasked = [party for party in parties if party not in known]
        if not unasked:
            return known
        with suppress(QuorumLost):  # whoever does not tell counts all the same
            if self.epsilon is None:
                known |= {party: told.counts.astype(float) for party, told in self._ask(fed, count_answers(), unasked)}
            else:
                noise = Laplace(self.epsilon, sensitivity=_CHANGE, relation="add_remove")
                told = self._ask(fed, add_up_blocks(self.blocks).through(Laplace(self.epsilon)), unasked)
                # What noise alone reaches in one of so many cells is nothing that a site tells.
                floor = noise.scale * 2 * np.log(fed.n_classes)
                known |= {party: np.where(each.values > floor, each.values, 0.0) for party, each in told}
        return known

    @staticmethod
    def _ask(fed: Federation, order: Order[Any], parties: Sequence[str]) -> Sequence[tuple[str, Any]]:
        # Aside: the sites' own training is what it would be with any other rule.
        return [(party, told) for party, told in fed.ask(order, parties, aside=True).items()]


def _said(votes: Votes, n_classes: int) -> NDArray[np.float64]:
    """How often a site says each class, of all samples."""
    return np.asarray((np.bincount(votes[votes >= 0], minlength=n_classes) + 1) / (len(votes) + n_classes))


def _skill(counts: Matrix) -> float:
    """Accuracy beyond chance, 0 to 1 (Cohen's kappa): 0 for always the same answer, 1/2 where nothing is known."""
    n = counts.sum()
    by_chance = counts.sum(axis=0) @ counts.sum(axis=1) / max(n, 1)
    return float(np.clip((np.trace(counts) - by_chance + 1) / (n - by_chance + 2), 0.0, 1.0))


def _alike(fed: Federation, parties: Sequence[str], votes: Votes) -> list[Hashable]:
    """The same for sites whose first votes are the same, sample by sample.

    A site that copies another, or is the same one under another name, shall have nothing of it. Only first votes tell
    that: later, all sites have learned the same consensus.
    """
    known: dict[str, Hashable] = fed.kept.setdefault("informed first votes", {})
    known |= {
        p: hashlib.sha256(own.tobytes()).digest() for p, own in zip(parties, votes, strict=True) if p not in known
    }
    return [known[party] for party in parties]


def _left_open(votes: Votes, belief: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The samples on which nobody votes, or, where sites abstain, only some that are not believed.

    A site whose labels are flipped would otherwise decide wherever others are silent. Under strong skew, honest sites
    are hardly borne out by others, either: then most are in doubt, and every vote counts.
    """
    return np.asarray((votes[_counted(belief, weights)] < 0).all(axis=0))


def _counted(belief: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The sites that are believed; all of them, if these are few. Copies of a site are no more than that site."""
    believed = np.asarray(belief >= _BELIEVED)
    return believed if weights[believed].sum() >= _MOST * weights.sum() else np.ones_like(believed)


def _known_without_votes(
    votes: Votes, belief: NDArray[np.float64], weights: NDArray[np.float64], opinion: NDArray[np.floating[Any]]
) -> NDArray[np.bool_]:
    """The made-up rows whose class the model behind them is sure of.

    None, unless votes on such rows bear the model out: with much noise in it, it is as sure and less often right.
    """
    counted = _counted(belief, weights)
    sure = np.asarray(opinion.max(axis=1) >= _SURE)
    cast = np.stack([weights[counted] @ (votes[counted] == code) for code in range(opinion.shape[1])])
    even = np.isclose(cast, cast.max(axis=0)).sum(axis=0) > 1  # a tie says nothing, and no vote at all neither
    decided = sure & ~even
    agreed = decided & (cast.argmax(axis=0) == opinion.argmax(axis=1))
    borne_out = (np.count_nonzero(agreed) + 1) / (np.count_nonzero(decided) + 2) >= _BORNE_OUT
    return sure if borne_out else np.zeros_like(sure)


class _Groups:
    """Sites that count as one together, by their places."""

    def __init__(self, alike: Sequence[Hashable]) -> None:
        places: dict[Hashable, list[int]] = {}
        for place, same in enumerate(alike):
            places.setdefault(same, []).append(place)
        self.of = [places[same] for same in alike]
        self.weights = np.array([1 / len(group) for group in self.of])

    def sums(self, of_site: Callable[[int], Matrix]) -> tuple[Matrix, Iterator[Matrix]]:
        """The weighted sum of a matrix over all sites; and for each site, that without its group, one at a time."""

        def over(places: Iterable[int]) -> Matrix:
            return np.asarray(sum(self.weights[place] * of_site(place) for place in places))

        total = over(range(len(self.of)))
        return total, (total - over(group) for group in self.of)  # for all at once there may be no room


def _shares_of_others(votes: Votes, groups: _Groups, n_classes: int) -> Iterator[Matrix]:
    """For each site: the shares of the other sites' votes per sample and class, none of them 0."""
    one_hot = np.eye(n_classes + 1)[:, :n_classes]  # -1 is the last row, of zeros
    _, others = groups.sums(lambda place: one_hot[votes[place]])
    return ((other + 0.5) / (other + 0.5).sum(axis=1, keepdims=True) for other in others)


def _shares(
    votes: Votes,
    belief: NDArray[np.float64],
    groups: _Groups,
    n_classes: int,
    opinion: NDArray[np.floating[Any]] | None = None,
) -> Matrix:
    """The share of each class in the votes on a sample, which count as their sites are believed.

    The opinion of the model behind made-up rows counts like one more site's vote.
    """
    one_hot = np.eye(n_classes + 1)[:, :n_classes]
    total, _ = groups.sums(lambda place: belief[place] * one_hot[votes[place]])
    total = total if opinion is None else total + opinion
    cast = total.sum(axis=1, keepdims=True)
    return np.where(cast > 0, total / np.where(cast > 0, cast, 1.0), 1 / n_classes)


def _weighed(
    claimed: Matrix,
    said: Matrix,
    votes: Votes,
    belief: NDArray[np.float64],
    groups: _Groups,
    prior: Matrix | None = None,
) -> tuple[Matrix, Iterator[Matrix]]:
    """The posterior, each site's claim counting as far as it is believed; and for each site that of the others."""
    mixed = belief[:, None, None] * claimed + (1 - belief)[:, None, None] * said[:, None, :]
    total, others = groups.sums(lambda place: _evidence(mixed[place], votes[place]))
    posterior, log_prior = _with_frequencies(total) if prior is None else (_normalized(total + prior), prior)
    return posterior, (_normalized(other + log_prior) for other in others)


def _evidence(claim: Matrix, votes: Votes) -> Matrix:
    """The logarithm of P(vote | class) per sample and class; 0 where the site abstains."""
    log_claim = np.concatenate([np.log(claim), np.zeros((len(claim), 1))], axis=1)
    return np.asarray(log_claim[:, votes].T)  # -1 is the last column


def _with_frequencies(evidence: Matrix) -> tuple[Matrix, NDArray[np.float64]]:
    """The posterior, with the class frequencies that fit it best; and their logarithm."""
    n, n_classes = evidence.shape
    log_prior = np.full(n_classes, -np.log(n_classes))
    for _ in range(_ITERATIONS):
        posterior = _normalized(evidence + log_prior)
        log_prior = np.log((posterior.sum(axis=0) + 1) / (n + n_classes))
    return posterior, log_prior


def _of_voted(posterior: Matrix, votes: Votes) -> Matrix:
    """Without the classes that nobody voted for on a sample."""
    voted = np.zeros(posterior.shape, dtype=bool)
    for site in votes:
        cast = np.flatnonzero(site >= 0)
        voted[cast, site[cast]] = True
    kept = np.where(voted, posterior, 0.0)
    total = kept.sum(axis=1, keepdims=True)
    return np.where(total > 0, kept / np.where(total > 0, total, 1.0), posterior)


def _beliefs(
    others: Iterable[Matrix], claimed: Matrix, said: Matrix, votes: Votes, before: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.array([_believed(*own) for own in zip(others, claimed, said, votes, before, strict=True)])


def _believed(others: Matrix, claim: Matrix, said: NDArray[np.float64], votes: Votes, belief: float) -> float:
    """The share of a site's votes that came about as it claims, not by saying each class as often as it does.

    `others` is what the other sites make of each sample.
    """
    cast = np.flatnonzero(votes >= 0)
    by_claim = np.einsum("nc,cn->n", others[cast], claim[:, votes[cast]])
    by_chance = said[votes[cast]]
    for _ in range(_ITERATIONS):
        fitting = belief * by_claim / (belief * by_claim + (1 - belief) * by_chance)
        belief = (fitting.sum() + _DOUBT[0]) / (len(cast) + sum(_DOUBT))
    return float(belief)


def _normalized(log_values: Matrix) -> Matrix:
    values = np.exp(log_values - log_values.max(axis=1, keepdims=True))
    return np.asarray(values / values.sum(axis=1, keepdims=True))
