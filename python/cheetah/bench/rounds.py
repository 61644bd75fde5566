"""Interleaving of contenders: A B C, B C A, C A B, so that a drift of the machine affects all of them."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def in_turns(names: Sequence[T], number: int) -> list[T]:
    """Returns the names in the order of a round, from 0: each round starts with the next one."""
    turn = number % len(names) if names else 0
    return [*names[turn:], *names[:turn]]
