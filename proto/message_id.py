"""Text form of message ids: hour and index, from which the message's first place follows without a lookup.

    0007 0007wk3 00000c1 k
    │    │       │       └─ check character
    │    │       └───────── index, 7 characters   (spaces only here)
    │    └───────────────── hours since the epoch, 7 characters
    └────────────────────── shard, 4 characters

The digits are Crockford's base 32 (no i, l, o, u), most significant first, so ids sort as their messages'
hours do. The check character is one Reed-Solomon symbol over GF(32): it finds every single wrong character
and every two that changed places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

Code = TypeVar("Code", bound=np.unsignedinteger[Any])

ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
SHARD_MAX: Final = 32**4 - 1
HOUR_MAX: Final = 2**32 - 1
GLOBAL_INDEX_MAX: Final = 2**32 - 2
_WIDTHS: Final = (4, 7, 7)
_DIGITS: Final = sum(_WIDTHS)
_BITS: Final = 5 * 7
_MASK: Final = (1 << _BITS) - 1
LENGTH: Final = _DIGITS + 1
_VALUE: Final = {character: value for value, character in enumerate(ALPHABET)}
# What people write for what they read: Crockford's equivalents, and capitals.
_READ_AS: Final = str.maketrans(
    {"o": "0", "i": "1", "l": "1"}
    | {c.upper(): c for c in ALPHABET if c.isalpha()}
    | {"O": "0", "I": "1", "L": "1"}
)


class InvalidMessageId(ValueError):
    """The text is not a message id; the message says why. Nothing was looked up: correct the id."""


def _check_table() -> tuple[tuple[int, ...], ...]:
    """Return digit * a^(position+1) in GF(32), x^5 + x^2 + 1, by [position][digit]; the check: their xor."""
    powers = [1]
    for _ in range(31):
        doubled = powers[-1] << 1
        powers.append(doubled ^ 0b100101 if doubled & 32 else doubled)
    log = {power: exponent for exponent, power in enumerate(powers[:31])}
    return tuple(
        tuple(0 if digit == 0 else powers[(log[digit] + position + 1) % 31] for digit in range(32))
        for position in range(_DIGITS)
    )


_CHECK: Final = _check_table()
_CHECK_COLUMNS: Final = np.array(_CHECK, np.uint8)
_CODE_POINTS: Final = np.array([ord(character) for character in ALPHABET], np.uint32)
_ASCII: Final = _CODE_POINTS.astype(np.uint8)
_NO_DIGIT: Final = 255
_DIGIT_OF: Final = np.array(
    [_VALUE.get(chr(code).translate(_READ_AS), _NO_DIGIT) for code in range(256)], np.uint8
)
_PLACE_IN_CHECK: Final = 32 * np.arange(_DIGITS, dtype=np.intp)[:, np.newaxis]
_FEW: Final = 8
"""So many ids are read sooner one by one than together."""


def _check_of(digits: list[int]) -> int:
    check = 0
    for position, digit in enumerate(digits):
        check ^= _CHECK[position][digit]
    return check


@dataclass(frozen=True, slots=True, order=True)
class MessageId:
    """Id of a message: its shard, the hour (since the epoch) in which it was due first, its index in that."""

    shard: int
    hour: int
    global_index: int

    def __str__(self) -> str:
        if not (
            0 <= self.shard <= SHARD_MAX
            and 0 <= self.hour <= HOUR_MAX
            and 0 <= self.global_index <= GLOBAL_INDEX_MAX
        ):
            raise InvalidMessageId(f"out of range: {self!r}")
        number = (self.shard << _BITS | self.hour) << _BITS | self.global_index
        digits = [number >> 5 * place & 31 for place in reversed(range(_DIGITS))]
        return "".join([ALPHABET[digit] for digit in [*digits, _check_of(digits)]])

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """Return the id that a text stands for. Raises InvalidMessageId.

        Capitals, and o, i, l for 0, 1, 1, are read as meant.
        """
        if len(text) != LENGTH:
            raise InvalidMessageId(f"a message id has {LENGTH} characters, not {len(text)}")
        plain = text.translate(_READ_AS)
        for position, character in enumerate(plain):
            if character not in _VALUE:
                raise InvalidMessageId(f"character {position + 1} of a message id cannot be {character!r}")
        digits = [_VALUE[character] for character in plain]
        if _check_of(digits[:-1]) != digits[-1]:
            raise InvalidMessageId("the check character does not fit: the message id was mistyped or cut")
        number = 0
        for digit in digits[:-1]:
            number = number << 5 | digit
        shard, hour, global_index = number >> 2 * _BITS, number >> _BITS & _MASK, number & _MASK
        if hour > HOUR_MAX or global_index > GLOBAL_INDEX_MAX:
            raise InvalidMessageId("no message can have this hour or this index")
        return cls(shard, hour, global_index)


def parse_ids(texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the columns shard, hour and index, shape (n,), of many ids; about 0.1 µs each.

    Raises as `MessageId.parse` does for the first text that is no id.
    """
    if len(texts) <= _FEW:
        ids = [MessageId.parse(text) for text in texts]
        few = np.array([(one.shard, one.hour, one.global_index) for one in ids], np.uint32).reshape(-1, 3)
        return few[:, 0], few[:, 1], few[:, 2]
    octets = np.frombuffer("".join(texts).encode("ascii", "replace"), np.uint8)
    if set(map(len, texts)) != {LENGTH}:
        raise _first_error(texts)
    digits = np.ascontiguousarray(_DIGIT_OF.take(octets).reshape(-1, LENGTH).T)
    *places, check = digits
    numbers = []
    for width in _WIDTHS:
        number = np.zeros(len(texts), np.uint64)
        for _ in range(width):
            number = number << np.uint64(5) | places.pop(0)
        numbers.append(number)
    wrong = (digits == _NO_DIGIT).any(axis=0)
    expected = _CHECK_COLUMNS.take(_PLACE_IN_CHECK + digits[:-1], mode="clip")
    wrong |= np.bitwise_xor.reduce(expected, axis=0) != check
    wrong |= (numbers[1] > HOUR_MAX) | (numbers[2] > GLOBAL_INDEX_MAX)
    if bool(wrong.any()):
        raise _first_error(texts)
    shard, hour, global_index = (number.astype(np.uint32) for number in numbers)
    return shard, hour, global_index


def _first_error(texts: Sequence[str]) -> InvalidMessageId:
    for text in texts:
        try:
            MessageId.parse(text)
        except InvalidMessageId as error:
            return error
    raise AssertionError("each of the texts is an id")


def format_ids(shard: int, hour: NDArray[np.uint32], global_index: NDArray[np.uint32]) -> list[str]:
    """Return the ids of many messages, as str(MessageId(...)) gives them; about 0.2 µs each.

    `hour` and `global_index` have shape (n,). Raises InvalidMessageId where the shard is out of range.
    """
    text = _characters(shard, hour, global_index, _CODE_POINTS)
    ids: list[str] = text.view(f"<U{LENGTH}").ravel().tolist()
    return ids


def format_id_octets(
    shard: int, hour: NDArray[np.uint32], global_index: NDArray[np.uint32]
) -> NDArray[np.uint8]:
    """Return what `format_ids` does as ASCII, shape (n, LENGTH)."""
    return _characters(shard, hour, global_index, _ASCII)


def _characters(
    shard: int, hour: NDArray[np.uint32], global_index: NDArray[np.uint32], alphabet: NDArray[Code]
) -> NDArray[Code]:
    """Return the characters of ids, shape (n, LENGTH), each one of the alphabet."""
    if not 0 <= shard <= SHARD_MAX:
        raise InvalidMessageId(f"no shard {shard}")
    count = len(hour)
    text = np.empty((LENGTH, count), alphabet.dtype)
    check = np.zeros(count, np.uint8)
    columns = (np.full(count, shard, np.uint32), hour, global_index)
    position = 0
    for column, width in zip(columns, _WIDTHS, strict=True):
        for place in range(width - 1, -1, -1):
            digit = (column >> np.uint32(5 * place)) & np.uint32(31)
            check ^= _CHECK_COLUMNS[position][digit]
            text[position] = alphabet[digit]
            position += 1
    text[position] = alphabet[check]
    return np.ascontiguousarray(text.T)
