"""Filters, case by case: what a condition says of a message with certain properties."""

from __future__ import annotations

import pytest

from tarry.node.filters.conditions import NUMBER_CHARS_MAX, Truth
from tarry.node.filters.parser import parse

T, F, U = True, False, None
MESSAGE = {
    "amount": "120",
    "price": "12.50",
    "minus": "-7",
    "tiny": "1e-3",
    "huge": "9007199254740993",
    "zero": "0",
    "padded": "007",
    "region": "eu",
    "name": "it's",
    "word": "abc",
    "yes": "true",
    "shout": "TRUE",
    "no": "false",
    "blank": "",
    "spaced": " 5",
    "under": "1_000",
    "arabic": "٣",
    "nan": "NaN",
    "long": "1" * (NUMBER_CHARS_MAX + 1),
    "trace-id": "x1",
    "_a$1": "v",
    "Case": "upper",
}

CASES: list[tuple[str, Truth]] = [
    # numbers, whole and decimal, exact where they are whole
    ("amount = 120", T), ("amount = 121", F), ("amount = 120.0", T), ("amount = 1.2e2", T),
    ("amount = 120L", T), ("amount = +120", T), ("amount = -120", F), ("amount <> 120", F),
    ("amount <> 121", T), ("amount > 119", T), ("amount > 120", F), ("amount >= 120", T),
    ("amount >= 121", F), ("amount < 121", T), ("amount < 120", F), ("amount <= 120", T),
    ("amount <= 119", F), ("amount > 119.9", T), ("amount < 120.1", T), ("120 = amount", T),
    ("119 < amount", T), ("121 < amount", F), ("120 <= amount", T), ("121 > amount", T),
    ("120 >= amount", T), ("119 > amount", F), ("119 <> amount", T), ("price > 12", T),
    ("price = 12.5", T), ("price < 12.5", F), ("price = .125e2", T), ("price > 12.", T),
    ("minus < 0", T), ("minus = -7", T), ("minus > -8", T), ("tiny > 0", T), ("tiny = 0.001", T),
    ("tiny < 1E-2", T), ("zero = 0", T), ("zero = -0", T), ("padded = 7", T),
    ("huge = 9007199254740993", T), ("huge = 9007199254740992", F), ("huge > 9007199254740992", T),
    ("amount < 9223372036854775807", T), ("amount > -9223372036854775808", T),
    # a text that is no number, compared with one, is unknown
    ("word = 1", U), ("word <> 1", U), ("word > 1", U), ("word <= 1", U), ("1 < word", U), ("blank = 0", U),
    ("blank < 1", U), ("spaced = 5", U), ("under = 1000", U), ("arabic = 3", U), ("nan = 1", U),
    ("nan <> 1", U), ("long > 1", U), ("yes = 1", U), ("NOT (word = 1)", U), ("word = 1 OR amount = 120", T),
    ("word = 1 AND amount = 1", F), ("word = 1 AND amount = 120", U),
    # texts
    ("region = 'eu'", T), ("region = 'EU'", F), ("region <> 'us'", T), ("region <> 'eu'", F),
    ("'eu' = region", T), ("'us' <> region", T), ("name = 'it''s'", T), ("name = 'its'", F),
    ("blank = ''", T), ("blank <> ''", F), ("amount = '120'", T), ("amount = '120.0'", F),
    ("padded = '7'", F), ("padded = '007'", T), ("yes = 'true'", T), ("spaced = ' 5'", T),
    # truth values: any other text than "true" is FALSE
    ("yes = TRUE", T), ("yes = true", T), ("shout = TRUE", T), ("no = TRUE", F), ("no = FALSE", T),
    ("word = FALSE", T), ("word = TRUE", F), ("yes <> TRUE", F), ("no <> TRUE", T), ("TRUE = yes", T),
    ("FALSE = yes", F), ("amount = FALSE", T), ("blank = FALSE", T), ("long = TRUE", F),
    # two properties, two values
    ("amount = amount", T), ("amount > price", T), ("price > amount", F), ("amount <= amount", T),
    ("region = word", F), ("region <> word", T), ("region < word", U), ("amount > word", U),
    ("1 = 1", T), ("1 = 2", F), ("1 < 2", T), ("2 >= 3", F), ("'a' = 'a'", T), ("'a' <> 'a'", F),
    ("'5' = 5", T), ("5 = '5'", T), ("'x' = 5", U), ("TRUE = TRUE", T), ("TRUE = FALSE", F),
    ("TRUE = 5", F), ("TRUE <> 5", T), ("1 = 1.0", T),
    # BETWEEN
    ("amount BETWEEN 100 AND 200", T), ("amount BETWEEN 120 AND 120", T), ("amount BETWEEN 121 AND 130", F),
    ("amount BETWEEN 100 AND 119", F), ("amount NOT BETWEEN 100 AND 200", F),
    ("amount NOT BETWEEN 121 AND 130", T), ("amount NOT BETWEEN 120 AND 130", F),
    ("price BETWEEN 12.4 AND 12.6", T), ("minus BETWEEN -10 AND -5", T), ("word BETWEEN 1 AND 2", U),
    ("word NOT BETWEEN 1 AND 2", U), ("100 BETWEEN price AND amount", T), ("5 BETWEEN 1 AND 10", T),
    ("amount BETWEEN price AND 130", T), ("amount BETWEEN 1 AND 2 OR region = 'eu'", T),
    ("amount BETWEEN 100 AND 200 AND region = 'us'", F), ("amount BETWEEN 200 AND gone", F),
    ("amount BETWEEN 100 AND gone", U), ("amount NOT BETWEEN 200 AND gone", T),
    # IN
    ("region IN ('eu')", T), ("region IN ('us', 'eu', 'ap')", T), ("region IN ('us')", F),
    ("region NOT IN ('us')", T), ("region NOT IN ('us','eu')", F), ("amount IN ('120')", T),
    ("amount IN ('120.0')", F), ("name IN ('it''s')", T), ("blank IN ('')", T), ("blank IN ('a','')", T),
    # IS NULL
    ("region IS NULL", F), ("region IS NOT NULL", T), ("gone IS NULL", T), ("gone IS NOT NULL", F),
    ("blank IS NULL", F), ("blank IS NOT NULL", T), ("NOT gone IS NULL", F), ("NOT gone IS NOT NULL", T),
    # searches
    ("word CONTAINS 'b'", T), ("word CONTAINS 'abc'", T), ("word CONTAINS 'x'", F), ("word CONTAINS 'B'", F),
    ("word NOT CONTAINS 'b'", F), ("word NOT CONTAINS 'x'", T), ("word STARTSWITH 'ab'", T),
    ("word STARTSWITH 'bc'", F), ("word NOT STARTSWITH 'ab'", F), ("word NOT STARTSWITH 'bc'", T),
    ("word ENDSWITH 'bc'", T), ("word ENDSWITH 'ab'", F), ("word NOT ENDSWITH 'bc'", F),
    ("word NOT ENDSWITH 'ab'", T), ("amount CONTAINS '2'", T), ("name CONTAINS ''''", T),
    ("blank CONTAINS 'a'", F), ("blank NOT CONTAINS 'a'", T), ("word CONTAINS '%'", F),
    # a property that is missing
    ("gone = 1", U), ("gone <> 1", U), ("gone = 'a'", U), ("gone <> 'a'", U), ("gone > 1", U),
    ("1 < gone", U), ("1 <> gone", U), ("gone = TRUE", U), ("gone = FALSE", U), ("gone = gone", U),
    ("gone <> gone", U), ("gone = amount", U), ("amount <> gone", U), ("gone BETWEEN 1 AND 2", U),
    ("gone NOT BETWEEN 1 AND 2", U), ("gone IN ('a')", U), ("gone NOT IN ('a')", U),
    ("gone CONTAINS 'a'", F), ("gone NOT CONTAINS 'a'", F), ("gone STARTSWITH 'a'", F),
    ("gone NOT STARTSWITH 'a'", F), ("gone ENDSWITH 'a'", F), ("gone NOT ENDSWITH 'a'", F),
    ("NOT (gone CONTAINS 'a')", T), ("NOT gone = 1", U), ("gone = 1 OR gone IS NULL", T),
    # names, case, space, comments, precedence
    ("AMOUNT = 120", U), ("Case = 'upper'", T), ("case = 'upper'", U), ('"trace-id" = \'x1\'', T),
    ('"amount" = 120', T), ("_a$1 = 'v'", T), ("amount>100and region='eu'", T),
    ("amount > 100 And region iN ('eu')", T), ("\tamount\n=\r\n120 ", T), ("amount = 120 -- the rest", T),
    ("amount /* of it */ = 120", T), ("/* ** */ amount = 120", T), ("TRUE", T), ("FALSE", F),
    ("NOT FALSE", T),
    ("(((amount = 120)))", T), ("NOT amount = 1", T), ("NOT NOT amount = 120", T),
    ("TRUE OR FALSE AND FALSE", T), ("(TRUE OR FALSE) AND FALSE", F), ("NOT TRUE OR TRUE", T),
    ("NOT (TRUE OR TRUE)", F), ("NOT FALSE AND FALSE", F), ("amount = 120 OR gone = 1", T),
    ("region contains 'e' AND NOT region startswith 'u'", T), ("'a--b' = 'a--b'", T),
    ("'/*' = '/*'", T), ("amount = 120AND region = 'eu'", T),
]  # fmt: skip

AND = {
    (T, T): T, (T, F): F, (T, U): U,
    (F, T): F, (F, F): F, (F, U): F,
    (U, T): U, (U, F): F, (U, U): U,
}  # fmt: skip
OR = {
    (T, T): T, (T, F): T, (T, U): T,
    (F, T): T, (F, F): F, (F, U): U,
    (U, T): T, (U, F): U, (U, U): U,
}  # fmt: skip
NOT = {T: F, F: T, U: U}
STATED = {T: "amount = 120", F: "amount = 1", U: "gone = 1"}


def said(text: str) -> Truth:
    return parse(text).test(MESSAGE)


@pytest.mark.parametrize(("text", "truth"), CASES)
def test_a_condition_says_what_the_table_says(text: str, truth: Truth) -> None:
    assert said(text) is truth


def test_the_table_is_whole() -> None:
    assert len(CASES) >= 150
    assert len({text for text, _ in CASES}) == len(CASES)


@pytest.mark.parametrize("pair", AND)
def test_and_or_and_not_are_those_of_three_values(pair: tuple[Truth, Truth]) -> None:
    left, right = (STATED[one] for one in pair)
    assert said(f"{left} AND {right}") is AND[pair]
    assert said(f"{left} OR {right}") is OR[pair]
    assert said(f"NOT {left}") is NOT[pair[0]]
    assert said(f"NOT ({left} AND {right})") is NOT[AND[pair]]
    assert said(f"NOT ({left} OR {right})") is NOT[OR[pair]]


@pytest.mark.parametrize("first", STATED)
@pytest.mark.parametrize("pair", AND)
def test_three_parts_are_the_same_as_two_and_one(first: Truth, pair: tuple[Truth, Truth]) -> None:
    left, right = (STATED[one] for one in pair)
    assert said(f"{STATED[first]} AND {left} AND {right}") is AND[first, AND[pair]]
    assert said(f"{STATED[first]} OR {left} OR {right}") is OR[first, OR[pair]]
