"""The environment's variables that look like a node's settings: a typing error is not passed over."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

PREFIX: Final = "TARRY_"
OTHERS: Final = frozenset(
    {
        *("TARRY_SERVER", "TARRY_TOKEN", "TARRY_TLS_CA", "TARRY_TLS_CERTIFICATE", "TARRY_TLS_KEY"),  # clients
        *("TARRY_FSYNC", "TARRY_TOXIPROXY"),  # tarry.chaos
    }
)
"""Those of tarry's other programs."""
SECRET: Final = "TARRY_TOKEN"
"""In a name that begins so, and is none, what follows may be a token."""
_KUBERNETES: Final = re.compile(r"_(SERVICE_(HOST|PORT)|PORT)(_|$)")
"""Names of variables that Kubernetes sets in every container of a Service whose name begins with tarry."""


def check(names: Iterable[str], fields: Iterable[str]) -> None:
    """Raise ValueError for names that no program of tarry reads, with the one that was perhaps meant."""
    known = {PREFIX + field.upper() for field in fields}
    wrong = []
    for name in sorted({name.upper() for name in names if name.upper().startswith(PREFIX)}):
        key = PREFIX + name.removeprefix(PREFIX).partition("__")[0]
        if key in known or name in OTHERS or _KUBERNETES.search(name):
            continue
        near = get_close_matches(key, known, n=1)
        shown = f"{SECRET}…" if key.startswith(SECRET) else name
        wrong.append(f"{shown}: no such setting" + (f"; {near[0]} is one" if near else ""))
    if wrong:
        raise ValueError("environment: " + "\nenvironment: ".join(wrong))
