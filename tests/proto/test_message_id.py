"""Message ids as text: short, safe in a URL, and hard to mistype into another."""

from __future__ import annotations

import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.proto.message_id import (
    ALPHABET,
    GLOBAL_INDEX_MAX,
    HOUR_MAX,
    LENGTH,
    SHARD_MAX,
    InvalidMessageId,
    MessageId,
    format_ids,
    parse_ids,
)

FIXED = "0007000f66000030edv"
message_ids = st.builds(
    MessageId, st.integers(0, SHARD_MAX), st.integers(0, HOUR_MAX), st.integers(0, GLOBAL_INDEX_MAX)
)


@given(message_ids)
def test_an_id_is_read_back_from_its_text_also_in_capitals(message_id: MessageId) -> None:
    text = str(message_id)
    assert len(text) == LENGTH
    assert set(text) <= set(string.ascii_lowercase + string.digits)
    assert MessageId.parse(text) == message_id
    assert MessageId.parse(text.upper()) == message_id
    assert MessageId.parse(text.replace("0", "o").replace("1", "l")) == message_id


@given(st.integers(0, SHARD_MAX), st.lists(message_ids))
def test_many_are_formatted_as_one_is(shard: int, many: list[MessageId]) -> None:
    hours = np.array([one.hour for one in many], np.uint32)
    indices = np.array([one.global_index for one in many], np.uint32)
    expected = [str(MessageId(shard, one.hour, one.global_index)) for one in many]
    assert format_ids(shard, hours, indices) == expected


@given(st.lists(message_ids, max_size=40))
def test_many_are_read_as_one_is(many: list[MessageId]) -> None:
    texts = list(map(str, many))
    for written in (texts, [text.upper().replace("0", "O").replace("1", "L") for text in texts]):
        read = np.stack(parse_ids(written), axis=1).tolist()
        assert [MessageId(*one) for one in read] == many


@given(
    st.lists(message_ids, max_size=30),
    st.text(st.characters(max_codepoint=300), max_size=LENGTH + 2)
    | st.text("0123vz", min_size=LENGTH, max_size=LENGTH),
    st.integers(0, 30),
)
def test_many_with_one_that_is_none_are_refused_as_that_one_is(
    many: list[MessageId], text: str, at: int
) -> None:
    texts = list(map(str, many))
    texts.insert(at, text)
    try:
        MessageId.parse(text)
    except InvalidMessageId as error:
        with pytest.raises(InvalidMessageId) as raised:
            parse_ids(texts)
        assert str(raised.value) == str(error)
    else:
        parse_ids(texts)


@given(message_ids, st.integers(0, LENGTH - 1), st.sampled_from(ALPHABET))
def test_every_wrong_character_is_noticed(message_id: MessageId, position: int, wrong: str) -> None:
    text = str(message_id)
    if text[position] != wrong:
        with pytest.raises(InvalidMessageId, match=r"check character|no message can have"):
            MessageId.parse(text[:position] + wrong + text[position + 1 :])


@given(message_ids, st.integers(0, LENGTH - 1), st.sampled_from(ALPHABET))
def test_a_mistyped_character_among_many_is_noticed(message_id: MessageId, position: int, wrong: str) -> None:
    text = str(message_id)
    if text[position] != wrong:
        with pytest.raises(InvalidMessageId):
            parse_ids([FIXED] * 30 + [text[:position] + wrong + text[position + 1 :]])


@given(message_ids, st.integers(0, LENGTH - 2))
def test_every_exchange_of_neighbours_is_noticed(message_id: MessageId, position: int) -> None:
    text = str(message_id)
    exchanged = text[:position] + text[position + 1] + text[position] + text[position + 2 :]
    if exchanged != text:
        with pytest.raises(InvalidMessageId):
            MessageId.parse(exchanged)


@given(message_ids, message_ids)
def test_texts_sort_as_ids_do(one: MessageId, other: MessageId) -> None:
    assert (str(one) < str(other)) == (one < other)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "19 characters, not 0"),
        ("0" * 18, "19 characters, not 18"),
        ("0" * 20, "19 characters, not 20"),
        ("0" * 18 + "u", "character 19 of a message id cannot be 'u'"),
        ("-" + "0" * 18, "character 1 of a message id cannot be '-'"),
        ("０" * 19, "character 1 of a message id cannot be '０'"),
    ],
)
def test_a_text_that_is_no_id_is_refused_and_the_reason_given(text: str, why: str) -> None:
    with pytest.raises(InvalidMessageId, match=why):
        MessageId.parse(text)


def test_numbers_that_do_not_fit_an_id_are_refused() -> None:
    for wrong in (MessageId(-1, 0, 0), MessageId(SHARD_MAX + 1, 0, 0), MessageId(0, 0, GLOBAL_INDEX_MAX + 1)):
        with pytest.raises(InvalidMessageId):
            str(wrong)
    with pytest.raises(InvalidMessageId, match="no shard"):
        format_ids(SHARD_MAX + 1, np.zeros(1, np.uint32), np.zeros(1, np.uint32))


def test_the_text_never_changes_between_versions() -> None:
    assert str(MessageId(0, 0, 0)) == "0000000000000000000"
    assert str(MessageId(7, 497_856, 98_765)) == FIXED
    assert MessageId.parse(FIXED) == MessageId(7, 497_856, 98_765)
