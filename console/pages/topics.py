"""The pages *Topics* and of one topic, and changes of topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tarry.client.errors import NotFound, Refused
from tarry.client.operators.cluster_operator import TopicDescription
from tarry.client.operators.topic_settings import TopicOptions
from tarry.client.recurring.recurring import PAGE_MAX
from tarry.console.forms import (
    POLICY_FIELDS,
    TOPIC_FIELDS,
    Misread,
    changes,
    filled_in,
    fingerprint,
    read,
    read_number,
)
from tarry.console.guard import form_of
from tarry.console.rendering import (
    BEFORE,
    access_of,
    client_of,
    confirmed,
    done,
    live,
    page,
    render,
    review,
    rights_of,
)
from tarry.console.views.cells import path
from tarry.console.views.table import table_of
from tarry.console.views.topics import GROUP_COLUMNS, TOPIC_COLUMNS, group_rows, topic_rows, topics_of
from tarry.console.watch import Look

REDRIVEN_MAX: Final = 10_000
"""Dead letters that one change gives back."""
KEEPING: Final = ("retention_ms", "retention_bytes", "retention_max_ms")
"""Settings that say what is deleted."""


async def values_of(request: Request, look: Look) -> Mapping[str, Any]:
    """Return what the page of all topics shows of a look."""
    values = request.query_params
    return {"topics": table_of("topics", "Topics", TOPIC_COLUMNS, topic_rows(look), values, "-pending")}


async def topic_values_of(request: Request, look: Look) -> Mapping[str, Any]:
    """Return what the page of one topic shows of a look."""
    topic = request.path_params["topic"]
    found = [one for one in topics_of(look.best) if one.topic == topic]
    rows = group_rows(found)
    return {
        "topic": topic,
        "found": found[0] if found else None,
        "rate": look.rates.get(topic),
        "groups": table_of("groups", "Groups", GROUP_COLUMNS, rows, request.query_params, "-lag"),
    }


async def _topic(request: Request) -> Response:
    return await _topic_page(request, {}, {})


async def _topic_page(request: Request, typed: Mapping[str, str], faults: Mapping[str, str]) -> Response:
    """Return the page of a topic; what was typed into its form, and what is wrong with it, is shown."""
    topic = request.path_params["topic"]
    look = await access_of(request).watch.look()
    described: TopicDescription | None = None
    filled: dict[str, str] = {}
    counts: dict[str, str] = {}
    if rights_of(look).operate:  # others are not told of settings
        described = await client_of(request).operator().describe_topic(topic)
        own: Mapping[str, Any] = described.settings
        fields = (*TOPIC_FIELDS, *POLICY_FIELDS)
        filled, counts = filled_in(fields, {**own, **own["group_policy"]}, described.policy, typed)
    elif topic not in [one.topic for one in topics_of(look.best)]:
        raise HTTPException(404, f"There is no topic {topic} that you may see.")
    return render(
        request,
        "topic.html",
        look=look,
        described=described,
        topic_fields=TOPIC_FIELDS,
        policy_fields=POLICY_FIELDS,
        filled=filled,
        counts=counts,
        faults=faults,
        page=path("topics", topic),
        status=400 if faults else 200,
        **await topic_values_of(request, look),
    )


async def _create(request: Request) -> Response:
    form, operator = await form_of(request), client_of(request).operator()
    topic = form.get("topic", "").strip()
    try:
        await operator.describe_topic(topic)
    except NotFound:
        pass
    else:  # making it once more would set all its settings back
        text = f"Topic {topic} is there already; nothing was changed."
        return done(request, "Not done", [text], path("topics", topic), status=409)
    if not form.get("confirmed"):
        sentences = [f"Topic {topic} is made, with the cluster's defaults; its page changes them."]
        return review(request, "Make a topic", sentences, {"topic": topic}, button="Make it", back="/topics")
    await operator.create_topic(topic)
    return done(request, "Topic made", [f"{topic} is there."], path("topics", topic))


async def _change(request: Request) -> Response:
    """Change the settings of a topic, of which the form has all."""
    form, topic = await form_of(request), request.path_params["topic"]
    operator = client_of(request).operator()
    described = await operator.describe_topic(topic)
    try:
        given = read((*TOPIC_FIELDS, *POLICY_FIELDS), form)
    except Misread as error:
        return await _topic_page(request, form, error.faults)
    before: Mapping[str, Any] = described.settings
    settings = {field.name: given.get(field.name, before[field.name]) for field in TOPIC_FIELDS}
    policy = {field.name: given[field.name] for field in POLICY_FIELDS if field.name in given}
    own: Mapping[str, Any] = before["group_policy"]
    sentences = changes(TOPIC_FIELDS, before, settings) + changes(POLICY_FIELDS, own, policy)
    back = path("topics", topic)
    if not sentences:
        return done(request, "Nothing changes", [f"The settings of {topic} are as they were."], back)
    if not confirmed(form, before):
        sentences.append("They count at once.")
        if any(before[name] != settings[name] for name in KEEPING):
            sentences.append(
                "Messages that are older than the new bounds are deleted, also unacknowledged ones "
                "where the hard retention says so."
            )
        form |= {BEFORE: fingerprint(before)}
        return review(request, f"Change {topic}", sentences, form, button="Change it", back=back)
    options = cast(TopicOptions, settings | {"group_policy": policy})
    await operator.create_topic(topic, **options)
    return done(request, "Settings changed", sentences, back)


async def _delete(request: Request) -> Response:
    form, topic = await form_of(request), request.path_params["topic"]
    operator = client_of(request).operator()
    status = (await operator.describe_topic(topic)).status
    if not form.get("confirmed"):
        sentences = [
            f"Topic {topic} is deleted, with {status.released - status.first_offset:,} released messages "
            f"and {len(status.groups):,} groups.",
            f"Its {status.pending:,} pending messages go with it.",
            *await _schedules_of(request, topic),
            "Nothing brings them back.",
        ]
        return review(
            request,
            f"Delete {topic}",
            sentences,
            {},
            button="Delete it",
            back=path("topics", topic),
            danger=True,
        )
    gone = await operator.delete_topic(topic)
    return done(
        request,
        "Topic deleted",
        [
            f"{topic} is gone, with {gone.released:,} released and {gone.pending:,} pending messages and "
            f"{gone.recurring:,} schedules."
        ],
        "/topics",
    )


async def _schedules_of(request: Request, topic: str) -> list[str]:
    """Return what a deletion does to schedules of the topic, in words; nothing where nodes keep none yet."""
    try:
        page = await client_of(request).recurring().list_page(topic, size=PAGE_MAX)
    except Refused:
        return []
    least = "at least " if page.cursor else ""
    return [f"So do {least}{len(page.schedules):,} schedules that send to it."]


async def _redrive(request: Request) -> Response:
    """Give dead letters back, a bounded number at a time, so that no answer is waited for without end."""
    form, topic = await form_of(request), request.path_params["topic"]
    operator, back = client_of(request).operator(), path("topics", topic)
    try:
        most = read_number(form.get("most", "").strip() or str(REDRIVEN_MAX))
        if not 0 < most <= REDRIVEN_MAX:
            raise ValueError(f"give 1 to {REDRIVEN_MAX:,}: more are given back one after another")
    except ValueError as error:
        return done(request, "Not done", [str(error)], back, status=400)
    asked: dict[str, Any] = {
        "reason": form.get("reason", ""),
        "tags": form.get("tags", "").split(),
        "messages_max": most,
    }
    if not form.get("confirmed"):
        found = await operator.redrive(topic, **asked, dry_run=True)
        sentences = [
            f"{found.redriven:,} of the first {found.looked_at:,} dead letters go back to the groups that "
            "gave them up."
        ]
        return review(request, f"Redrive {topic}", sentences, form, button="Give them back", back=back)
    made = await operator.redrive(topic, **asked)
    sentences = [f"{made.redriven:,} of {made.looked_at:,} dead letters went back."]
    if made.redriven == REDRIVEN_MAX:
        sentences.append("There may be more: redrive once more, or all of them with tarry redrive.")
    return done(request, "Redriven", sentences, back)


ROUTES: Final = (
    Route("/topics", page("topics.html", values_of)),
    Route("/live/topics", live("topics_live.html", values_of)),
    Route("/topics", _create, methods=["POST"]),
    Route("/topics/{topic}", _topic),
    Route("/live/topics/{topic}", live("topic_live.html", topic_values_of)),
    Route("/topics/{topic}/settings", _change, methods=["POST"]),
    Route("/topics/{topic}/delete", _delete, methods=["POST"]),
    Route("/topics/{topic}/redrive", _redrive, methods=["POST"]),
)
