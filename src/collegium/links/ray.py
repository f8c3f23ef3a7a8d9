"""Sites in Ray actors, on this machine or on a cluster. Each site stays with its actor; only frames are exchanged.

Many sites share one actor, since each actor is a process. The public set is put into Ray's object store once, and
actors on one machine read the same copy of it.

Ray is for simulations: whoever reaches a Ray cluster can run any code on it. Never use it between organisations.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, as_completed
from concurrent.futures import TimeoutError as DeadlinePassed
from contextlib import ExitStack, suppress
from functools import cached_property
from math import ceil
from typing import Any, ClassVar, Final

from collegium.core.attendance import Attendance
from collegium.core.link import Answer
from collegium.errors import CollegiumError, ConfigError
from collegium.links.hosting import Hosting, available_cores
from collegium.links.local import Exchange
from collegium.links.packing import pack, split, split_alike
from collegium.links.ray_actor import Host, SitesActor
from collegium.links.ray_cluster import connected
from collegium.links.simulated import Collected, SimulatedLink

_START_SECONDS: Final = 300.0
_SHARED_BYTES: Final = 100_000
"""Frames from this size on go through the object store, once for all sites that get the same one."""


class RayLink(SimulatedLink):
    """Sites in Ray actors: `workers` of them, by default one per CPU of the cluster.

    With `gpus`, there are at least as many actors, each with a GPU or a share of one. Sites with the same learner go to
    the same actors, where they can be trained together.

    Without an address, Ray is started on this machine, for this run and this machine only. An actor that dies leaves
    its sites out of that exchange. If the run has a folder, it is restarted and its sites continue from their state.
    """

    has_cluster: ClassVar[bool] = True

    def __init__(self, hosting: Hosting, workers: int = 0, address: str | None = None, gpus: float = 0.0) -> None:
        super().__init__(hosting, workers, address, gpus)
        self._has_states = hosting.folder is not None
        self._exchange = 0
        self._stack = ExitStack()
        self._ray = self._stack.enter_context(
            connected(address, cpus=min(workers or available_cores(), len(self.parties)))
        )
        try:
            self._hosts = self._launch(hosting, workers, gpus)
        except BaseException:
            self.close()
            raise
        self._home = {party: host for host in self._hosts for party in host.parties}

    def _launch(self, hosting: Hosting, workers: int, gpus: float) -> list[Host]:
        ray = self._ray
        resources = ray.cluster_resources()
        cpus = max(1, int(resources.get("CPU", 1)))
        actors = min(max(workers, ceil(gpus)) or cpus, len(self.parties))
        share = share_of_gpu(gpus, actors, resources.get("GPU", 0.0))
        threads = max(2, cpus // actors)  # a site that hangs does not hold up all others of its actor
        public = ray.put(None if hosting.public is None else hosting.public.X)
        hosts = []
        for part in split_alike(hosting, actors) if gpus else split(hosting, actors):
            mine = {site.name for site in part.sites}
            make = ray.remote(SitesActor).options(
                num_cpus=min(1.0, cpus / actors),
                num_gpus=share,
                scheduling_strategy="SPREAD",
                max_concurrency=2 * len(mine) + 8,
            )
            packed = io.BytesIO()
            pack(part, packed)
            hosts.append(Host(ray, mine, make.remote, (ray.put(packed.getvalue()), public, threads)))
            self._stack.callback(hosts[-1].close)
        _start(hosts, _START_SECONDS)
        return hosts

    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        """One frame to each party; answers as they come. An actor that died leaves its parties out."""
        self._revive(orders, deadline)
        self._exchange += 1
        stored: dict[bytes, Any] = {}
        at_host = Counter(self._home[party] for party in orders)
        pending: dict[Future[Answer | None], str] = {}
        for party, frame in orders.items():
            if len(frame) >= _SHARED_BYTES and frame not in stored:
                stored[frame] = self._ray.put(frame)
            host = self._home[party]
            if host.alive:
                exchange = Exchange(self._exchange, at_host[host], deadline)
                pending[host.ask(party, stored.get(frame, frame), exchange)] = party
        try:
            for future in as_completed(list(pending), timeout=deadline):
                answer = self._home[pending.pop(future)].answer(future)
                del future  # answers are passed on, not kept
                if answer is not None:
                    yield answer
        except DeadlinePassed:
            for host in self._hosts:
                if host.alive and not host.parties.isdisjoint(pending.values()):
                    host.abandon()

    def _revive(self, orders: Mapping[str, bytes], deadline: float | None) -> None:
        """Start actors that died again, if their sites have a stored state to continue from."""
        if not self._has_states:
            return
        dead = [host for host in self._hosts if not host.alive and not host.parties.isdisjoint(orders)]
        with suppress(CollegiumError):  # its sites are then missing this time too, and their logs say why
            _start(dead, _START_SECONDS if deadline is None else deadline)

    @cached_property
    def _collected(self) -> Collected:
        collected = Collected({}, Attendance())
        for host in self._hosts:
            sites, attendance = host.collect()
            collected.sites.update(sites)
            collected.attendance.add(attendance)
        return collected

    def close(self) -> None:
        """End the actors, and Ray, if it was started here."""
        self._stack.close()


def share_of_gpu(gpus: float, actors: int, available: float) -> float:
    """The share of a GPU that each actor gets: whole GPUs have equally many actors each, but for the last."""
    if gpus > 1 and gpus != int(gpus):
        raise ConfigError(f"gpus must be a whole number, or a share of one GPU, got {gpus:g}.")
    if gpus > available:
        raise ConfigError(f"gpus={gpus:g}, but Ray knows of {available:g} here: use that many, or start Ray with more.")
    return gpus / actors if gpus <= 1 else 1 / ceil(actors / gpus)


def _start(hosts: list[Host], seconds: float) -> None:
    """Start actors side by side."""
    for host in hosts:
        host.launch()
    for host in hosts:
        host.wait(seconds)
