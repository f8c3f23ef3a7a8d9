"""Runs a program of pfl's own benchmarks and writes the seconds of its training loop into seconds.json.

    python beside_pfl_program.py image_classification/pytorch/train.py --args_config ...

This runs in pfl's environment, so it imports nothing of ours. Several processes of pfl talk through NCCL, which does
not let them share a GPU: here they talk through gloo.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import torch
from pfl.algorithm import FederatedAveraging

start_group, run = torch.distributed.init_process_group, FederatedAveraging.run


def start_with_gloo(**settings: Any) -> None:
    """Begin the group of processes, whatever the backend that was asked for."""
    start_group(**settings | {"backend": "gloo"})


def timed(self: Any, *arguments: Any, **settings: Any) -> Any:
    """Train, and write how long that took."""
    begun = time.perf_counter()
    trained = run(self, *arguments, **settings)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    Path("seconds.json").write_text(json.dumps(time.perf_counter() - begun))
    return trained


torch.distributed.init_process_group = start_with_gloo
FederatedAveraging.run = timed
sys.argv = sys.argv[1:]
sys.path.insert(0, str(Path(sys.argv[0]).parents[2]))
runpy.run_path(sys.argv[0], run_name="__main__")
