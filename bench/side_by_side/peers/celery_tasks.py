"""The Celery application: imported by its worker and by the bench; the environment says where Redis is."""

from __future__ import annotations

import os
import time
from pathlib import Path

from celery import Celery

app = Celery("side_by_side", broker=os.environ["SIDE_BY_SIDE_REDIS"])
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,  # so that a worker's crash loses nothing
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={"visibility_timeout": 6 * 3_600},  # longer than any delay, as its manual asks
    broker_connection_retry_on_startup=True,
    task_default_queue="bench",
)
_out = Path(os.environ["SIDE_BY_SIDE_OUT"]).open("a", buffering=1)  # noqa: SIM115 - as long as the worker


@app.task  # type: ignore[untyped-decorator]
def receive(body: str) -> None:
    """Write down what came, and when."""
    _out.write(f"{time.time_ns() / 1e6} {body}\n")
