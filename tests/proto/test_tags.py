"""Tag masks: what a filter lets through."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tarry.proto.tags import ANY, ONE, TagFilter, tag_bit, tag_bits, tag_hash, tag_mask

tags = st.lists(st.text(max_size=4), max_size=4)


def passes(wanted: list[str], mask: int) -> bool:
    return bool(TagFilter(wanted).may_match(np.array([mask], np.uint64))[0])


def test_bits_and_hashes_are_what_they_were_when_messages_were_stored() -> None:
    assert [tag_bit(tag) for tag in ("", "paid", "a", "b")] == [1 << 0, 1 << 17, 1 << 48, 1 << 4]
    assert [tag_hash(tag) for tag in ("", "paid", "a", "b")] == [1, 0xF6962291, 0xC1D04330, 0xD280B0D4]


@given(tags, tags, st.sampled_from(["", "key"]))
def test_no_message_that_has_a_tag_is_passed_over(wanted: list[str], own: list[str], key: str) -> None:
    mask = tag_mask(own, key)
    assert 0 <= mask < 1 << 64
    if not wanted or not set(wanted).isdisjoint(own):
        assert passes(wanted, mask)


@given(tags, tags)
def test_who_knows_bits_alone_passes_over_no_message_either(wanted: list[str], own: list[str]) -> None:
    if not set(wanted).isdisjoint(own):
        assert tag_mask(own) & tag_bits(wanted)


@given(tags)
def test_messages_of_versions_that_know_bits_alone_are_found(own: list[str]) -> None:
    assert not own or passes(own[:1], tag_bits(own))


def test_of_messages_with_one_tag_a_filter_of_a_thousand_lets_its_own_through_and_no_others() -> None:
    wanted = [f"customer-{number}" for number in range(1_000)]
    masks = np.array([tag_mask([f"customer-{number}"]) for number in range(20_000)], np.uint64)
    assert np.flatnonzero(TagFilter(wanted).may_match(masks)).tolist() == list(range(1_000))


def test_a_filter_of_tags_lets_no_message_without_tags_through() -> None:
    assert not passes(["a"], tag_mask([]))


def test_many_tags_whose_bits_look_like_a_hash_match_any_filter() -> None:
    many = [str(number) for number in range(1_000)]
    assert tag_bits(many) >= ONE
    assert passes(["another"], tag_mask(many))


def test_half_a_mask_unfolded_matches_any_filter_where_it_looks_like_a_hash() -> None:
    assert passes(["another"], ANY << 32 | ANY)
