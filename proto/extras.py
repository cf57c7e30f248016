"""The packages of each extra of tarry, and the refusal of a program that lacks one."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final

PACKAGES: Final = {
    "node": (
        "pysyncobj",
        "grpc_health",
        "grpc_reflection",
        "lmdb",
        "pyroaring",
        "pydantic_settings",
        "structlog",
        "pyarrow",
        "prometheus_client",
        "cronsim",
        "lark",
        "tzdata",
    ),
    "spark": ("pyspark", "pyarrow"),  # the others are asked for only by some of its commands
    "chaos": ("pysyncobj", "toxiproxy", "plotly", "jinja2"),
    "parquet": ("pyarrow",),
    "redis": ("redis",),
    "postgresql": ("psycopg",),
    "console": ("starlette", "uvicorn", "jinja2"),
    "http": ("starlette", "uvicorn", "httpcore"),  # pydantic is typer's, too
    "opentelemetry": ("opentelemetry",),
}
LACKING: Final = 2  # exit code, as of wrong usage


def lacking(extra: str, *packages: str) -> str:
    """Return what to install if one of these packages, or any of the extra's, is missing; else nothing."""
    missing = [name for name in packages or PACKAGES[extra] if find_spec(name) is None]
    return f'{missing[0]} is missing: pip install "tarry[{extra}]"' if missing else ""


def require(extra: str, *packages: str) -> None:
    """End the program with exit code 2 where one of these packages, or any of the extra's, is missing."""
    if text := lacking(extra, *packages):
        sys.stderr.write(f"{text}\n")
        raise SystemExit(LACKING)
