"""What a net's learner brings to a meeting of sites: an update, or rows to answer."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import ClassVar

import torch

from collegium.core.meeting import Alone, in_places
from collegium.core.terms import UpdateReport
from collegium.errors import CollegiumWarning, ConfigError
from collegium.learners.torch import lanes, together
from collegium.learners.torch.answers import Late, Question, answers_of_several
from collegium.learners.torch.cuda_graphs import turn
from collegium.learners.torch.devices import CPU
from collegium.learners.torch.stacked_layers import layers_like
from collegium.learners.torch.together import stacks_well
from collegium.learners.torch.training import Training, Update


@dataclass(frozen=True, eq=False)
class UpdateWork:
    """One update of one net."""

    trains: ClassVar[bool] = True
    update: Update

    @cached_property
    def _why_not(self) -> str | None:
        return together.why_not(self.update)

    @cached_property
    def kind(self) -> Hashable | None:
        """Equal for updates that are the same computation on other numbers, or that are trained side by side."""
        if self._why_not is None:
            return together.kind_of(self.update)
        schedule = self.update.schedule
        return ("side by side", schedule.device, schedule.precision) if lanes.has_lane(self.update) else None

    @property
    def why_alone(self) -> str:
        """Why it is carried out alone."""
        return self._why_not or "no other site's net and settings are like it"

    def alone(self) -> UpdateReport:
        """Carry it out; if its steps cannot be recorded, which leaves the net as it was, one by one."""
        done: dict[int, UpdateReport] = {}
        failure = _failure([self.update], done) if lanes.has_lane(self.update) else None
        if _is_memory(failure) and together.has_room_now([self.update]):
            failure = _failure([self.update], done)
        if failure is not None:
            self.update.training.recordable = False
            _warn_of_no_recording(failure)
        return done[0] if done else self.update.carry_out()

    def together(self, others: Sequence[UpdateWork]) -> Sequence[UpdateReport | Alone]:
        """Carry these out, of which it is the first; those that cannot be are to be carried out alone."""
        updates = [each.update for each in others]
        return together.train_together(updates) if self._why_not is None else _side_by_side(updates)


def _failure(updates: Sequence[Update], done: dict[int, UpdateReport]) -> type[Exception] | None:
    """Train these side by side; what went wrong, if anything. Only its type: the error has hold of memory."""
    try:
        lanes.train_side_by_side(updates, done)
    except ConfigError:  # their rows, not what is done with them
        if len(updates) == 1:
            raise
        return ConfigError
    except Exception as error:
        return type(error)
    return None


def _is_memory(failure: type[Exception] | None) -> bool:
    return failure is not None and issubclass(failure, torch.OutOfMemoryError)


def _warn_of_no_recording(failure: type[Exception]) -> None:
    what = failure.__name__
    text = f"The steps of a net cannot be recorded on this GPU ({what}): it is trained without, which takes longer."
    warnings.warn(text, CollegiumWarning, stacklevel=3)


def _side_by_side(updates: Sequence[Update]) -> list[UpdateReport | Alone]:
    """As many at a time as fit into memory; if one of them fails, each alone, so that it hurts nobody else."""
    outcomes: list[UpdateReport | Alone] = [Alone("there is no memory for more than one net")] * len(updates)
    waiting, gave_back = [list(range(len(updates)))], False
    while waiting:
        group = waiting.pop()
        done: dict[int, UpdateReport] = {}
        failure = _failure([updates[at] for at in group], done)
        for place, report in done.items():
            outcomes[group[place]] = report
        left = [at for place, at in enumerate(group) if place not in done]
        if failure is None or not left:
            continue
        if not _is_memory(failure):
            for at in left:
                outcomes[at] = Alone(f"a net beside it cannot be trained ({failure.__name__})")
        elif together.has_room_now([updates[at] for at in left]) and not gave_back:
            gave_back = True
            waiting.append(left)
        else:
            half = (len(left) + 1) // 2
            together.warn_of_memory(len(left), half)
            waiting += [part for part in (left[:half], left[half:]) if len(part) > 1]
    return outcomes


@dataclass(frozen=True, eq=False)
class AnswerWork:
    """What one net says of rows."""

    trains: ClassVar[bool] = False
    why_alone: ClassVar[str] = "no other site's net is like it"
    training: Training
    asked: Question

    @property
    def kind(self) -> Hashable | None:
        """Equal for answers of nets with the same layers, of the same rows."""
        if not stacks_well(self.training):
            return None
        return "answer", self.training.layers, self.training.shapes, self.asked.rows.identity, *self.asked[1:]

    def alone(self) -> Late:
        """Ask the net."""
        return self.training.answers(self.asked)

    def together(self, others: Sequence[AnswerWork]) -> Sequence[Late | Alone]:
        """Ask all of them, of which it is the first."""
        with turn(self.asked.device):
            for each in others:
                each.training.to(self.asked.device, self.asked.precision)
        head = self.training.head if self.asked.said == "features" else ""
        layers = layers_like(self.training.net, self.training.layers)
        weights = sum(prod(shape) for _, shape, _ in self.training.shapes)
        n = together.parts_of(len(others), weights * len(self.asked.rows)) if self.asked.device == CPU else 1
        try:
            # Each part has layers of its own, since weights are put into them; made before one is at work with its own.
            own = [layers, *(copy.deepcopy(layers) for _ in range(n - 1))]
            asks = [
                partial(
                    answers_of_several, [each.training.net for each in others[part::n]], own[part], head, self.asked
                )
                for part in range(n)
            ]
            found: list[Late | Alone] = [Alone("")] * len(others)
            for part, late in enumerate(in_places(asks)):
                found[part::n] = late
            return found
        except Exception as error:  # a net of the user's own may do what cannot be done for several at once
            return [Alone(f"its net cannot be computed with others ({type(error).__name__})")] * len(others)
