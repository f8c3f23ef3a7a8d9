"""A Ray cluster to work on: an existing one, or one of our own that nobody else can reach."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator, MutableMapping
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
            own = stack.enter_context(_folder()) if address in (None, "local") else None
            stack.callback(ray.shutdown)
            if own is not None:
                _start(ray, cpus, own)
            else:
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
    constants = vars(importlib.import_module("ray._private.ray_constants"))
    with _with(os.environ, **environment), _with(constants, ENABLE_RAY_CLUSTER=False), _unseen():
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
            "This version of Ray listens on other interfaces than loopback, so it was stopped: install another "
            "version, or start Ray yourself and give its address."
        )


def _join(ray: Any, address: str) -> None:
    try:
        _knock(address)
        with _unseen():
            ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ConfigError(
            f"There is no Ray cluster at address {address!r} ({reason}). Start one with `ray start --head`, or omit "
            "the address: Ray is then started on this machine."
        ) from None


def _knock(address: str) -> None:
    """Fail at once if nobody answers: Ray itself would try for many minutes without a message."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", address)
    services = importlib.import_module("ray._private.services")
    found = address if "://" in address else services.canonicalize_bootstrap_address(address) or address
    host, colon, port = found.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_SECONDS).close()


def _folder() -> tempfile.TemporaryDirectory[str]:
    """A short-lived folder that nobody else may read; the names of sockets in it must stay short."""
    usual = Path("/tmp")  # noqa: S108
    return tempfile.TemporaryDirectory(
        prefix="cg-ray-", dir=usual if usual.is_dir() else None, ignore_cleanup_errors=True
    )


@contextmanager
def _with(place: MutableMapping[str, Any], **changes: Any) -> Iterator[None]:
    """Other environment variables, or other settings of one of Ray's modules, inside the block."""
    before = {name: place[name] for name in changes if name in place}
    place.update(changes)
    try:
        yield
    finally:
        for name in changes.keys() - before.keys():
            place.pop(name, None)
        place.update(before)


@contextmanager
def _unseen() -> Iterator[None]:
    """Ray takes over SIGTERM and prints what happens to its processes: callers keep theirs, and the link reports."""
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        with _with(vars(importlib.import_module("ray._private.worker")), listen_error_messages=lambda *_, **__: None):
            yield
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Show only errors of Ray's logger inside the block."""
    logger = logging.getLogger("ray")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
