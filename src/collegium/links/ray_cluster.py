"""A Ray cluster to work on: one that is there already, or one of our own that nobody else can reach."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from collegium.errors import CollegiumError, ConfigError, MissingExtra
from collegium.links.packing import python_path

_LOOPBACK: Final = "127.0.0.1"
_KNOCK_SECONDS: Final = 10.0
_LOOPBACK_SWITCH: Final = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


@contextmanager
def connected(address: str | None, cpus: int) -> Iterator[Any]:
    """Ray, connected: to what this process is connected to already, to a given cluster, or to one of our own.

    A cluster of our own has `cpus` CPUs, listens on the loopback interface only and ends with the block.
    """
    ray = _import_ray()
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        if not ray.is_initialized():
            if address in (None, "local"):
                folder = stack.enter_context(_folder())
                stack.callback(ray.shutdown)
                _start(ray, cpus, folder)
            else:
                stack.callback(ray.shutdown)
                _join(ray, str(address))
        yield ray


def _import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise MissingExtra("ray", "The link 'ray'") from None


def _start(ray: Any, cpus: int, folder: str) -> None:
    environment = {
        "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # sites find the GPUs here, as on the other links
        "PYTHONPATH": python_path(),
        _LOOPBACK_SWITCH: "0",
    }
    # On Linux Ray takes 127.0.0.1 for an address that others should reach, and listens on all interfaces. The switch
    # that keeps it from that on other systems is read once, when Ray is imported: it is set for this process too.
    with _environment(environment), _with("ray._private.ray_constants", ENABLE_RAY_CLUSTER=False), _unseen():
        ray.init(
            address="local",
            num_cpus=cpus,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            _node_ip_address=_LOOPBACK,
            _temp_dir=folder,
        )
    if not all(ip_address(node["NodeManagerAddress"]).is_loopback for node in ray.nodes()):
        raise CollegiumError(
            "This version of Ray does not keep to the loopback interface, so it was ended: install another one, or "
            "start Ray yourself and give its address."
        )


def _join(ray: Any, address: str) -> None:
    try:
        _knock(address)
        with _unseen():
            ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ConfigError(
            f"There is no Ray cluster at address {address!r} ({reason}). Start one with `ray start --head`, or leave "
            "the address out: Ray is then started on this machine."
        ) from None


def _knock(address: str) -> None:
    """Is anybody there? Ray would try for many minutes, and say nothing."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", address)
    services = importlib.import_module("ray._private.services")
    found = address if "://" in address else services.canonicalize_bootstrap_address(address) or address
    host, colon, port = found.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_SECONDS).close()


@contextmanager
def _folder() -> Iterator[str]:
    """A short-lived folder that nobody else may read; the names of sockets in it must stay short."""
    usual = Path("/tmp")  # noqa: S108
    with tempfile.TemporaryDirectory(
        prefix="cg-ray-", dir=usual if usual.is_dir() else None, ignore_cleanup_errors=True
    ) as folder:
        yield folder


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for the processes that are started inside."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _with(module: str, **changes: Any) -> Iterator[None]:
    """Settings of Ray that it does not take as arguments, while it starts. One that a version lacks is left alone."""
    place = importlib.import_module(module)
    before = {name: getattr(place, name) for name in changes if hasattr(place, name)}
    for name in before:
        setattr(place, name, changes[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(place, name, value)


@contextmanager
def _unseen() -> Iterator[None]:
    """Ray takes over SIGTERM and prints what happens to its processes: callers keep theirs, and the link reports."""
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        with _with("ray._private.worker", listen_error_messages=lambda *_, **__: None):
            yield
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Ray greets and warns through its logger: only errors are shown meanwhile."""
    logger = logging.getLogger("ray")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
