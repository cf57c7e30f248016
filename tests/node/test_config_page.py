"""node/README.md has every key of the configuration, with its default."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from tarry.node import config

PAGE = Path(config.__file__).resolve().with_name("README.md").read_text()
SECTIONS: dict[str, type[BaseModel]] = {
    "The node": config.NodeConfig,
    "[limits]": config.Limits,
    "[delivery]": config.Delivery,
    "[dispatch]": config.Dispatch,
    "[transactions]": config.TransactionSettings,
    "[consensus]": config.Consensus,
    "[ledger]": config.LedgerSettings,
    "[backup]": config.BackupSettings,
    "[connections]": config.Connections,
    "[upgrade]": config.Upgrade,
    "[audit]": config.AuditSettings,
    "[metrics]": config.MetricsSettings,
    "[gateway]": config.GatewaySettings,
    "[tls]": config.Tls,
    "[tokens]": config.Token,
}


def shown(section: str) -> dict[str, str]:
    """Return the keys and defaults of a section of the page."""
    _, _, rest = PAGE.partition(f"## {section}\n")
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| .+ \|$", rest.partition("\n## ")[0], re.MULTILINE)
    return dict(rows)


def default_of(value: object) -> str:
    return "none" if value is None else f"`{json.dumps(value, default=str)}`"


@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_has_each_key_of_a_section_with_its_default(section: str) -> None:
    defaults = {
        key: "needed" if field.is_required() else default_of(field.default)
        for key, field in SECTIONS[section].model_fields.items()
        if not isinstance(field.default, BaseModel)
    }
    assert shown(section) == defaults


def test_the_page_has_every_section() -> None:
    sections = {
        f"[{key}]"
        for key, field in config.NodeConfig.model_fields.items()
        if isinstance(field.default, BaseModel)
    }
    assert sections | {"The node", "[tls]", "[tokens]"} == SECTIONS.keys()
