"""Filters against SQLite, where both dialects say the same of the same properties.

Both have three-valued logic. What differs is left out: RocketMQ's searches are never unknown, TRUE is a
text there, and a text that is no number is unknown where SQLite would compare by type.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.node.filters.parser import parse

NUMBERS = ("n1", "n2", "n3")
TEXTS = ("t1", "t2")
number_columns = st.sampled_from(NUMBERS)
text_columns = st.sampled_from(TEXTS)
words = st.sampled_from(["", "a", "b", "ab", "it's", "A", "%", "_"])
values = st.integers(-3, 3) | st.sampled_from([0.5, -1.25, 2.0, 2**53 + 1])


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
equalities = st.sampled_from(["=", "<>"])
negated = st.sampled_from(["", "NOT "])
numbers = number_columns | values.map(str)
texts = text_columns | words.map(quoted)
leaf = st.one_of(
    st.builds("{} {} {}".format, numbers, signs, numbers),
    st.builds("{} {} {}".format, texts, equalities, texts),
    st.builds(
        lambda column, no, ends: f"{column} {no}BETWEEN {min(ends)} AND {max(ends)}",
        number_columns,
        negated,
        st.tuples(values, values),
    ),
    st.builds(
        lambda column, no, some: f"{column} {no}IN ({', '.join(map(quoted, some))})",
        text_columns,
        negated,
        st.lists(words, min_size=1, max_size=4),
    ),
    st.builds("{} IS {}NULL".format, number_columns | text_columns, negated),
)
filters = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("{} AND {} OR {}".format, leaf, leaf, inner),
        st.builds("NOT {}".format, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=12,
)
rows = st.fixed_dictionaries(
    {name: st.none() | values for name in NUMBERS} | {name: st.none() | words for name in TEXTS}
)


@pytest.fixture(scope="module")
def oracle() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE message (n1 NUMERIC, n2 NUMERIC, n3 NUMERIC, t1 TEXT, t2 TEXT)")
    yield connection
    connection.close()


@given(filters, st.lists(rows, min_size=1, max_size=5))
def test_a_filter_says_what_sqlite_says(
    oracle: sqlite3.Connection, text: str, messages: list[dict[str, int | float | str | None]]
) -> None:
    condition = parse(text)
    for message in messages:
        oracle.execute("DELETE FROM message")
        oracle.execute("INSERT INTO message VALUES (:n1, :n2, :n3, :t1, :t2)", message)
        (expected,) = oracle.execute(f"SELECT ({text}) FROM message").fetchone()
        properties = {name: str(value) for name, value in message.items() if value is not None}
        assert condition.test(properties) is (None if expected is None else bool(expected)), properties
