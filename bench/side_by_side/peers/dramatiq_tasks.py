"""The dramatiq actor: imported by its worker and by the bench; the environment says where Redis is."""

from __future__ import annotations

import os
import time
from pathlib import Path

import dramatiq
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=os.environ["SIDE_BY_SIDE_REDIS"]))
_out = Path(os.environ["SIDE_BY_SIDE_OUT"]).open("a", buffering=1)  # noqa: SIM115 - as long as the worker


@dramatiq.actor(queue_name="bench")  # type: ignore[untyped-decorator]
def receive(body: str) -> None:
    """Write down what came, and when."""
    _out.write(f"{time.time_ns() / 1e6} {body}\n")
