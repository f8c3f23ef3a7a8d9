"""What the holder of a kit lets the network do: NVFlare's own settings, cut down to what a link needs.

NVFlare's defaults let a lead send code and read files. Here a job may name one class and carry no code; nobody may run
shell commands, restart a site or stream its logs. The files belong to the kit's holder, who can only tighten them:
the agent's gate, not this, decides what leaves a site.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from collegium.flare.kits.kit import Kind

RELAY: Final = "collegium.flare.nvflare.relay.LinkRelay"
_COMMON: Final = "nvflare.app_common"
_DEAD_AFTER_SECONDS: Final = 60


def site_resources() -> dict[str, Any]:
    """A site runs no jobs: orders reach it without (see `collegium.flare.nvflare.orders`)."""
    return _only() | {"client": {"retry_timeout": 30, "compression": "Gzip"}, "components": []}


def server_resources(kit: Path) -> dict[str, Any]:
    """The server runs our relay; jobs are kept in the kit, not in a folder that the whole machine can read.

    NVFlare wants absolute paths, so this is written again when a server starts: kits are moved.
    """
    storage = f"{_COMMON}.storages.filesystem_storage.FilesystemStorage"
    root = kit.resolve()
    snapshots = {"path": storage, "args": {"root_dir": str(root / "snapshots"), "uri_root": "/"}}
    # a session whose site died lingers for a while: the next one must not wait for it
    schedule = {"max_jobs": 32, "min_schedule_interval": 1.0, "max_schedule_interval": 10.0}
    server = {"max_num_clients": 1000, "heart_beat_timeout": _DEAD_AFTER_SECONDS, "admin_timeout": 10.0}
    return _only(RELAY) | {
        "servers": [{"admin_storage": "transfer"} | server],
        "snapshot_persistor": {
            "path": f"{_COMMON}.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": {"uri_root": "/", "storage": snapshots},
        },
        "components": [
            _part("job_scheduler", "job_schedulers.job_scheduler.DefaultJobScheduler", **schedule),
            {
                "id": "job_manager",
                "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                "args": {"uri_root": str(root / "jobs"), "job_store_id": "job_store"},
            },
            {"id": "job_store", "path": storage},
            _part("process_launcher", "job_launcher.server_process_launcher.ServerProcessJobLauncher"),
        ],
    }


def _only(*allowed: str) -> dict[str, Any]:
    """These classes may run, and logs stay here."""
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [*allowed],
        "allow_log_streaming": False,
    }


def _part(name: str, path: str, **args: Any) -> dict[str, Any]:
    return {"id": name, "path": f"{_COMMON}.{path}", "args": args}


def lead_resources() -> dict[str, Any]:
    """A lead's connection stays open through a long run."""
    seconds = {"idle_timeout": 7 * 86400.0, "login_timeout": 10.0, "authenticate_msg_timeout": 2.0}
    return {"format_version": 1, "admin": {"with_debug": False, "prompt": "> "} | seconds}


def rights(kind: Kind) -> dict[str, Any]:
    """A lead starts and stops its own sessions. Nobody sends code, operates a site or reads its files.

    At the server, leads of the organisation that runs it may also disable a site (`operate`); others may not.
    """
    lead = {"submit_job": "any", "manage_job": "n:submitter", "view": "any"}
    if kind == "server":
        lead |= {"download_job": "n:submitter", "operate": "o:site"}
    return {"format_version": "1.0", "permissions": {"lead": lead}}


def log_settings() -> dict[str, Any]:
    """Everything to the console, which the supervisor writes to one file with a size limit."""
    line = {
        "()": "nvflare.fuel.utils.log_utils.BaseFormatter",
        "fmt": "%(asctime)s %(levelname)s %(name)s: %(message)s",
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": line},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stdout"}},
        "loggers": {"root": {"level": "INFO", "handlers": ["console"]}},
    }


def write_policy(kit: Path, kind: Kind) -> None:
    """Put the settings into a kit's `local` folder, in place of NVFlare's defaults."""
    local = kit / "local"
    local.mkdir(exist_ok=True)
    for file in local.iterdir():
        file.unlink()
    if kind == "lead":
        files = {"resources.json": lead_resources()}
    else:
        resources = server_resources(kit) if kind == "server" else site_resources()
        files = {"resources.json": resources, "authorization.json": rights(kind), "log_config.json": log_settings()}
    for name, content in files.items():
        (local / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
