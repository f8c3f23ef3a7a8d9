"""Start a process of a federation, bound to its supervisor; NVFlare's without the doors that a link does not need.

    python -m collegium.flare.nvflare.guarded server|site ARGUMENTS OF NVFLARE
    python -m collegium.flare.nvflare.guarded agent KIT
    python -m collegium.flare.nvflare.guarded job MODULE OF NVFLARE, ITS ARGUMENTS

A site of NVFlare's answers administration messages: it runs `cat` or `ls`, restarts, reports its environment. Whether
the sender may do that, it learns from the message itself - and the server writes that message, so a server in wrong
hands could read any file that the site's user can read. It also deletes the folder of any job that the server names,
and `agent`, with the ledger in it, would pass for one. It starts a process for every job, from settings that the server
sends. Here a site knows no such messages: orders come over a channel of their own (`orders`).

A server of NVFlare's passes messages on from site to site: a site could give orders to another, which would take them
for the coordinator's and send its releases back. Here it does not.

NVFlare's process and its jobs talk over TCP on this machine, in the clear: any local user could join in, as a job or
as its parent, and give orders or end sessions. Here a site opens no port, and the server lets only programs of its own
user in.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import select
import signal
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any, Final

from collegium.flare.nvflare.callers import say_which_process, shut_out_second
from collegium.flare.nvflare.streams import hold_little
from collegium.flare.supervise.peers import is_own_user

_MODULES: Final = {
    "server": "nvflare.private.fed.app.server.server_train",
    "site": "nvflare.private.fed.app.client.client_train",
    "agent": "collegium.flare.site.agent",
}
_UNNEEDED: Final = (
    "nvflare.app_common.decomposers.numpy_decomposers",
    "nvflare.app_opt.pt",  # all of PyTorch, when a session ends
)
_SELF: Final = "collegium.flare.nvflare.guarded"
_SERVER: Final = "server"
_PR_SET_PDEATHSIG: Final = 1
_LONGEST_WAIT_SECONDS: Final = 2
_LOOK_SECONDS: Final = 0.5
_REMEMBERED_SECONDS: Final = 15.0
"""How long a session's process recognizes a message that is sent again, as happens after 5 seconds. Of what it does not
recognize, sites answer the same order with the same release, and a second answer is dropped."""
PARENT: Final = "COLLEGIUM_PARENT"


def die_with_parent() -> None:
    """End when the process that started this one ends, even if that was killed. Only Linux can do that."""
    parent = os.environ.pop(PARENT, None)
    if not sys.platform.startswith("linux") or parent is None:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):  # it ended before we asked
        os.kill(os.getpid(), signal.SIGKILL)


def follow_parent() -> None:
    """End with the process that started this one. For jobs: NVFlare's own watch begins late and takes ten seconds.

    A job cannot ask the kernel for it, as the others do: it would end with the thread that started it.
    """
    parent = os.environ.get(PARENT)
    if parent is not None:
        threading.Thread(target=_end_without, args=(int(parent),), daemon=True).start()


def _end_without(parent: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # it has ended, or the kernel does not offer this
            handle = os.pidfd_open(parent)
            if os.getppid() == parent:  # and not another process with its number
                select.select([handle], [], [])
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def bind_jobs() -> None:
    """Start jobs through this module, so that they follow this process from their first moment.

    A job that began to watch only when it is ready would be left behind by a parent that ended before.
    """
    from nvflare.app_common.job_launcher import process_launcher

    spawn = process_launcher.spawn_process

    def spawn_bound(command: list[str], environment: dict[str, str]) -> Any:
        python, option, *module = command
        return spawn([python, option, _SELF, "job", *module], environment)

    process_launcher.spawn_process = spawn_bound


def load_little() -> None:
    """Load neither array libraries nor web servers: a session carries bytes, over gRPC and local TCP.

    It makes each process of NVFlare's a third smaller, and what is not there cannot be reached.
    """
    sys.modules.update(dict.fromkeys(_UNNEEDED))  # type: ignore[arg-type]  # None: importing it is an ImportError
    from nvflare.fuel.f3.drivers.driver_manager import DriverManager

    DriverManager.search_folder = _know_two_drivers


def _know_two_drivers(drivers: Any, folder: str, package: str | None) -> None:
    from nvflare.fuel.f3.drivers.grpc_driver import GrpcDriver
    from nvflare.fuel.f3.drivers.tcp_driver import TcpDriver

    for driver in (GrpcDriver, TcpDriver):
        drivers.drivers.update(dict.fromkeys(driver.supported_transports(), driver))


def run_jobs_here_alone() -> None:
    """Start a session's job at once: sites run no part of it, and NVFlare would wait for theirs."""
    from nvflare.apis.job_def import SERVER_SITE_NAME
    from nvflare.apis.job_scheduler_spec import DispatchInfo
    from nvflare.app_common.job_schedulers import job_scheduler
    from nvflare.app_common.job_schedulers.job_scheduler import DefaultJobScheduler
    from nvflare.private.fed.server import job_runner

    def try_job(scheduler: Any, job: Any, fl_ctx: Any) -> tuple[int, dict[str, Any], str]:
        [app] = job.deploy_map
        here = DispatchInfo(app_name=app, resource_requirements={}, token=None)
        return job_scheduler.SCHEDULE_RESULT_OK, {SERVER_SITE_NAME: here}, ""

    DefaultJobScheduler._try_job = try_job
    job_runner.check_client_replies = lambda **replies: []


def close_doors() -> None:
    """Forget every administration message: a site runs no jobs, and needs none."""
    from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

    ClientRequestProcessors.request_processors.clear()


def name_jobs_strictly() -> None:
    """A job's name is a folder in the kit: accept only the ids that NVFlare makes."""
    from nvflare.apis import workspace

    workspace.check_job_id = _check_job_number


def _check_job_number(job: object) -> None:
    if not isinstance(job, str) or str(uuid.UUID(job)) != job:
        raise ValueError("not a job id")


def keep_sites_apart() -> None:
    """Pass nothing on from one site to another: a site could give orders, and the other would answer it."""
    from nvflare.fuel.f3.cellnet.core_cell import CoreCell

    forward = CoreCell._forward

    def only_with_the_server(cell: Any, endpoint: Any, origin: str, destination: str, *rest: Any) -> None:
        # the endpoint is whom the connection's certificate names; the origin is what the message says
        if _SERVER in (_member(endpoint.name), _member(destination)):
            forward(cell, endpoint, origin, destination, *rest)
        else:
            cell.logger.warning(f"refused: {endpoint.name} sent a message for {destination}")

    CoreCell._forward = only_with_the_server


def keep_other_users_out() -> None:
    """Take connections of jobs from this user's programs only."""
    from nvflare.fuel.f3.drivers.tcp_driver import TcpStreamServer

    def verify_request(server: Any, connected: Any, address: Any) -> bool:
        return is_own_user(connected)

    TcpStreamServer.verify_request = verify_request


def _member(cell: str) -> str:
    return cell.partition(".")[0]


def retry_soon() -> None:
    """Reconnect every few seconds when the server is away; NVFlare would wait longer and longer."""
    from nvflare.fuel.f3.sfm import conn_manager

    conn_manager.MAX_WAIT = _LONGEST_WAIT_SECONDS


def main() -> None:
    """Run what the first argument names."""
    kind = sys.argv.pop(1)
    if kind == "job":
        follow_parent()
        module = sys.argv.pop(1)
    else:
        die_with_parent()
        os.environ[PARENT] = str(os.getpid())  # of the jobs
        module = _MODULES[kind]
    if kind == "agent":
        # nobody else has these packages
        from collegium.flare.site.postponed import SELDOM_USED, do_without_arrow, postpone

        do_without_arrow(Path(sys.argv[1]) / "site.toml")
        postpone(SELDOM_USED)
    else:
        _change_nvflare(kind)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _change_nvflare(kind: str) -> None:
    load_little()
    name_jobs_strictly()
    keep_other_users_out()
    if kind == "job":
        hold_little(_REMEMBERED_SECONDS)
        return
    kit = Path(sys.argv[sys.argv.index("-m") + 1])
    if kind == "site":
        from collegium.flare.nvflare.orders import listen_to_nobody, pass_orders_on  # a server has no need of it

        hold_little(_REMEMBERED_SECONDS)
        say_which_process()
        close_doors()
        retry_soon()
        listen_to_nobody()
        pass_orders_on(kit)
    else:
        from collegium.flare.nvflare.revocation import shut_out_revoked  # nor a site of this

        hold_little()
        bind_jobs()
        run_jobs_here_alone()
        keep_sites_apart()
        shut_out_revoked(kit)
        shut_out_second(kit)


if __name__ == "__main__":
    main()
