"""The pages *Groups* and of one group, and changes of groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tarry.client.operators.group_policy import GroupDescription, PolicyOptions
from tarry.client.start_position import Start
from tarry.console.forms import (
    POLICY_FIELDS,
    Misread,
    changes,
    filled_in,
    fingerprint,
    read,
    read_number,
    read_start,
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
from tarry.console.views.table import Row, table_of
from tarry.console.views.topics import CONSUMER_COLUMNS, GROUP_COLUMNS, group_rows, lag_of, topics_of
from tarry.console.watch import Look


async def values_of(request: Request, look: Look) -> Mapping[str, Any]:
    """Return what the page of all groups shows of a look."""
    rows, values = group_rows(topics_of(look.best)), request.query_params
    return {"groups": table_of("groups", "Groups", GROUP_COLUMNS, rows, values, "-lag")}


async def group_values_of(request: Request, look: Look) -> Mapping[str, Any]:
    """Return what the page of one group shows of a look."""
    topic, group = request.path_params["topic"], request.path_params["group"]
    found = [
        (one, each)
        for one in topics_of(look.best)
        if one.topic == topic
        for each in one.groups
        if each.group == group
    ]
    return {
        "topic": topic,
        "group": group,
        "found": found[0][1] if found else None,
        "lag": max(0, lag_of(*found[0]) - found[0][1].delayed) if found else 0,
    }


async def _group(request: Request) -> Response:
    return await _group_page(request, {}, {})


async def _group_page(request: Request, typed: Mapping[str, str], faults: Mapping[str, str]) -> Response:
    """Return the page of a group; what was typed into its form, and what is wrong with it, is shown."""
    look = await access_of(request).watch.look()
    values = await group_values_of(request, look)
    described: GroupDescription | None = None
    filled: dict[str, str] = {}
    counts: dict[str, str] = {}
    if rights_of(look).operate:  # others are not told of policies and consumers
        described = await client_of(request).operator().describe_group(values["topic"], values["group"])
        filled, counts = filled_in(POLICY_FIELDS, described.own, described.policy, typed)
    elif values["found"] is None:
        raise HTTPException(
            404, f"There is no group {values['group']} of {values['topic']} that you may see."
        )
    return render(
        request,
        "group.html",
        look=look,
        described=described,
        policy_fields=POLICY_FIELDS,
        filled=filled,
        counts=counts,
        faults=faults,
        consumers=table_of(
            "consumers",
            "Consumers",
            CONSUMER_COLUMNS,
            _consumer_rows(described),
            request.query_params,
            "consumer",
        ),
        page=path("topics", values["topic"], values["group"]),
        status=400 if faults else 200,
        **values,
    )


def _consumer_rows(described: GroupDescription | None) -> list[Row]:
    if described is None:
        return []
    return [
        {
            "consumer": one.consumer,
            "address": one.address,
            "by": "calls" if one.polls else "stream" if one.since_ms else "",
            "connected": one.connected,
            "since_ms": one.since_ms,
            "credit": one.credit,
            "in_hand": one.in_hand,
            "lease_end_ms": one.lease_end_ms,
            "tags": " ".join(one.tags_shown),
            "filter": one.filter,
            "topics": " ".join(one.topics_shown),
        }
        for one in described.consumers
    ]


def _names(request: Request) -> tuple[str, str]:
    return request.path_params["topic"], request.path_params["group"]


async def _create(request: Request) -> Response:
    form, topic = await form_of(request), request.path_params["topic"]
    group, back = form.get("group", "").strip(), path("topics", topic)
    try:
        start = read_start(form.get("start", "").strip() or "earliest")
    except ValueError as error:
        return done(request, "Not done", [str(error)], back, status=400)
    operator = client_of(request).operator()
    known = (await operator.describe_topic(topic)).status.groups
    if any(one.group == group for one in known):  # making it once more would end its expiry
        text = f"Group {group} of {topic} is there already; nothing was changed."
        return done(request, "Not done", [text], path("topics", topic, group), status=409)
    if not form.get("confirmed"):
        sentences = [f"Group {group} of {topic} is made, and begins at {form.get('start') or 'earliest'}."]
        return review(request, "Make a group", sentences, form, button="Make it", back=back)
    offset = await operator.create_group(topic, group, start)
    return done(
        request, "Group made", [f"{group} begins at offset {offset:,}."], path("topics", topic, group)
    )


async def _change(request: Request) -> Response:
    """Change the policy of a group; a field that is empty it sets no more."""
    form, (topic, group) = await form_of(request), _names(request)
    operator = client_of(request).operator()
    own: Mapping[str, Any] = (await operator.describe_group(topic, group)).own
    try:
        given = read(POLICY_FIELDS, form)
    except Misread as error:
        return await _group_page(request, form, error.faults)
    sentences, back = changes(POLICY_FIELDS, own, given), path("topics", topic, group)
    if not sentences:
        return done(request, "Nothing changes", [f"The policy of {group} is as it was."], back)
    if not confirmed(form, own):
        sentences.append(
            "It counts for what is delivered from then on; a field that is not set is the topic's."
        )
        form |= {BEFORE: fingerprint(own)}
        return review(request, f"Change {group}", sentences, form, button="Change it", back=back)
    options = cast(PolicyOptions, given)
    await operator.set_group(topic, group, unset=own.keys() - given.keys(), **options)
    return done(request, "Policy changed", sentences, back)


async def _seek(request: Request) -> Response:
    form, (topic, group) = await form_of(request), _names(request)
    back, operator = path("topics", topic, group), client_of(request).operator()
    try:
        to, offset = _place(form)
    except ValueError as error:
        return done(request, "Not done", [str(error)], back, status=400)
    if not form.get("confirmed"):
        found = await operator.seek_group(topic, group, to, offset=offset, dry_run=True)
        sentences = [
            f"Group {group} moves from offset {found.from_offset:,} to {found.to_offset:,}.",
            f"{found.delivered_again:,} messages that it has acknowledged are delivered again.",
            f"{found.skipped:,} messages that it has not acknowledged are not delivered to it any more.",
        ]
        return review(request, f"Move {group}", sentences, form, button="Move it", back=back, danger=True)
    made = await operator.seek_group(topic, group, to, offset=offset)
    again = f"{made.delivered_again:,} are delivered again, {made.skipped:,} are skipped."
    return done(request, "Group moved", [f"{group} is at offset {made.to_offset:,}; {again}"], back)


def _place(form: Mapping[str, str]) -> tuple[Start | None, int | None]:
    """Return the place to move to: a start, or an offset. Raises ValueError."""
    text = form.get("to", "").strip()
    if text.isascii() and text.isdecimal() and len(text) < 9:  # times in ms have more digits
        return None, int(text)
    if text.startswith("offset "):
        return None, read_number(text[7:])
    return read_start(text), None


async def _delete(request: Request) -> Response:
    form, (topic, group) = await form_of(request), _names(request)
    operator, back = client_of(request).operator(), path("topics", topic)
    if not form.get("confirmed"):
        described = await operator.describe_topic(topic)
        own = [one for one in described.status.groups if one.group == group]
        lag = lag_of(described.status, own[0]) if own else 0
        retries = own[0].retrying + own[0].backing_off if own else 0
        sentences = [
            f"Group {group} of {topic} is deleted, with its position and its {retries:,} retries.",
            f"It has yet to acknowledge {lag:,} released messages; one of this name begins anew.",
        ]
        return review(
            request,
            f"Delete {group}",
            sentences,
            {},
            button="Delete it",
            back=path("topics", topic, group),
            danger=True,
        )
    left = await operator.delete_group(topic, group)
    return done(request, "Group deleted", [f"{group} is gone; it had {left:,} to acknowledge."], back)


ROUTES: Final = (
    Route("/groups", page("groups.html", values_of)),
    Route("/live/groups", live("groups_live.html", values_of)),
    Route("/topics/{topic}/{group}", _group),
    Route("/live/topics/{topic}/{group}", live("group_live.html", group_values_of)),
    Route("/topics/{topic}/groups/new", _create, methods=["POST"]),
    Route("/topics/{topic}/{group}/policy", _change, methods=["POST"]),
    Route("/topics/{topic}/{group}/seek", _seek, methods=["POST"]),
    Route("/topics/{topic}/{group}/delete", _delete, methods=["POST"]),
)
