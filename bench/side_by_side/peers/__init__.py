"""The systems that can be measured, in the order of their turns."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from tarry.bench.side_by_side.system import System

# name -> module and class; a module is only imported when its system is asked for
SYSTEMS: Final = {
    "tarry": ("tarry", "Tarry"),
    "etcd3": ("etcd", "Etcd3"),
    "rabbit_quorum": ("rabbitmq", "RabbitQuorum"),
    "redis_always": ("redis", "RedisAlways"),
    "redis_everysec": ("redis", "RedisEverysec"),
    "postgres_copy": ("postgres", "PostgresCopy"),
    "postgres_insert": ("postgres", "PostgresInsert"),
    "nats_r3": ("nats", "NatsScheduled"),
    "nats_r3_always": ("nats", "NatsScheduledSynced"),
    "nats_r3_log": ("nats", "NatsLog"),
    "rocketmq": ("rocketmq", "Rocketmq"),
    "beanstalkd": ("beanstalkd", "Beanstalkd"),
    "celery": ("workers", "CeleryEta"),
    "dramatiq": ("workers", "DramatiqDelay"),
    "etcd1": ("etcd", "Etcd1"),
}
NOT_TO_BE_HAD: Final = {
    "pulsar": "its broker is a Maven artifact with 700 others behind it; org.apache.pulsar:pulsar-broker "
    "3.0.7 was tried, Maven did not resolve it within 20 minutes",
}
IN_QUICK: Final = ("tarry", "etcd3", "rabbit_quorum")
ON_DEMAND: Final = ("etcd1", "postgres_insert", "nats_r3_always", "nats_r3_log")


def chosen(only: str, quick: bool) -> list[System]:
    """Return the systems named, with commas between, or the usual ones. Raises KeyError."""
    names = [name.strip() for name in only.split(",")] if only else None
    if names is None:
        names = [name for name in SYSTEMS if (name in IN_QUICK if quick else name not in ON_DEMAND)]
    return [_made(name) for name in names]


def _made(name: str) -> System:
    if name not in SYSTEMS:
        raise KeyError(f"no system {name}; there are {', '.join(SYSTEMS)}")
    module, kind = SYSTEMS[name]
    made: System = getattr(import_module(f"tarry.bench.side_by_side.peers.{module}"), kind)()
    return made
