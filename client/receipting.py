"""Whether receipts are asked for; pyarrow is not imported before they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tarry.client.settings import Settings

if TYPE_CHECKING:
    from tarry.client.receipts import Receipts


def receipts(settings: Settings, source: str, group: str | None = None) -> Receipts | None:
    """Return where a producer or consumer writes its receipts, None where nobody asked for any."""
    if settings.receipts is None:
        return None
    from tarry.client.receipts import Receipts

    return Receipts(settings.receipts, source, group)
