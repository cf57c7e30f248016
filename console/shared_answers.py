"""Answers beside the looks at the cluster: asked for once a look, however many pages show them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar

from tarry.console.watch import Look

ANSWERS_MAX: Final = 200
"""Kept of a look; beyond, an answer is of the page alone that asks."""

AnswerT = TypeVar("AnswerT")


class SharedAnswers:
    """Answers to the pages of one token."""

    def __init__(self) -> None:
        self._look: Look | None = None
        self._answers: dict[Hashable, asyncio.Task[Any]] = {}

    async def of(self, look: Look, key: Hashable, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """Return a key's answer of this look, asked for by the first page that wants it. Raises as ask."""
        if look is not self._look:
            self._look, self._answers = look, {}
        asked = self._answers.get(key)
        if asked is None:
            asked = asyncio.ensure_future(_awaited(ask))
            asked.add_done_callback(lambda task: task.cancelled() or task.exception())
            if len(self._answers) < ANSWERS_MAX:
                self._answers[key] = asked
        answer: AnswerT = await asyncio.shield(asked)  # a page that is left does not end it for others
        return answer


async def _awaited(ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
    return await ask()
