"""The evidence that is searched: an image of noise, or of noise and text, with words planted in it, and the lists of these words."""

from __future__ import annotations

import dataclasses
import os
import random
import string
from collections.abc import Iterator, Sequence

from bench.scratch import Scratch
from cheetah.bench.failure import BenchError
from cheetah.bench.units import KIB, MIB

FEW, MANY = 10, 10_000
# Longer than the words of the text, so that a word is found where it was planted only.
LETTERS = range(8, 15)
SEED = 1
# Different pieces of text, of a MiB each. Together they are larger than a processor's caches.
TEXTS = 32
VOCABULARY = 2000
# Data of each kind that `--find` knows, with valid check digits; no positions, which are no text.
KINDS = (
    "anna.koch@example.com",
    "https://www.example.org/kasse?beleg=7",
    "192.168.17.4",
    "2001:db8:85a3:8d3:1319:8a2e:370:7348",
    "+49 30 901820",
    "4111 1111 1111 1111",
    "DE89 3704 0044 0532 0130 00",
    "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa",
)
# One word of the text in this many is data of one of these kinds.
KIND_EVERY = 1000


@dataclasses.dataclass(frozen=True)
class Evidence:
    """An image, and the words that were planted in it, each as often as it was."""

    path: str
    size_bytes: int
    few: str
    many: str
    planted: tuple[str, ...]

    def hits_of_few(self) -> int:
        """Returns the number of hits of the few words."""
        few = set(keywords(FEW))
        return sum(word in few for word in self.planted)


def keywords(count: int) -> list[str]:
    """Returns different words of lower-case letters. The first ones are the same whatever their number."""
    choice = random.Random(SEED)
    words: dict[str, None] = {}
    while len(words) < count:
        words.setdefault("".join(choice.choices(string.ascii_lowercase, k=choice.choice(LETTERS))))
    return list(words)


def places(size_bytes: int, encodings: Sequence[str]) -> Iterator[tuple[int, str, bytes]]:
    """Yields where words are planted, with their bytes: in each MiB any of the words, in the encodings in turns, and across the
    end of each MiB one of the few, which so lies on two nodes."""
    choice = random.Random(SEED)
    words = keywords(MANY)
    for number in range(size_bytes // MIB):
        encoding = encodings[number % len(encodings)]
        word = choice.choice(words)
        yield number * MIB + choice.randrange(64 * KIB, MIB - 64 * KIB), word, word.encode(encoding)
        if number:
            word = choice.choice(words[:FEW])
            yield number * MIB - 4, word, word.encode(encoding)


def text(choice: random.Random) -> bytes:
    """Returns a MiB of text: words of some language, of which few are frequent, and data of each kind."""
    letters = string.ascii_lowercase
    vocabulary = ["".join(choice.choices(letters, k=choice.randrange(2, 8))) for _ in range(VOCABULARY)]
    weights = [1 / (rank + 1) for rank in range(VOCABULARY)]
    words = choice.choices(vocabulary, weights, k=MIB // 3)
    words[::12] = [f"{word}\n" for word in words[::12]]
    for number, at in enumerate(range(KIND_EVERY // 2, len(words), KIND_EVERY)):
        words[at] = KINDS[number % len(KINDS)]
    return " ".join(words).encode()[:MIB]


def make(
    scratch: Scratch, size_bytes: int, with_text: bool = False, encodings: Sequence[str] = ("utf-8", "utf-16le")
) -> Evidence:
    """Makes an image in memory: noise, or noise and text in turns, a MiB each; and the lists of words."""
    path = os.path.join(scratch.ram_dir, scratch.unique("evidence") + ".raw")
    choice = random.Random(SEED)
    texts = [text(choice) for _ in range(TEXTS)] if with_text else []
    planted = []
    with open(path, "wb") as file:
        for number in range(size_bytes // MIB):
            file.write(texts[number // 2 % TEXTS] if texts and number % 2 else os.urandom(MIB))
        file.flush()
        for offset, word, encoded in places(size_bytes, encodings):
            os.pwrite(file.fileno(), encoded, offset)
            planted.append(word)
    if os.path.getsize(path) != size_bytes:
        raise BenchError(f"{path}: {os.path.getsize(path)} bytes, not {size_bytes}")
    few, many = (_list(scratch, count) for count in (FEW, MANY))
    return Evidence(path, size_bytes, few, many, tuple(planted))


def _list(scratch: Scratch, count: int) -> str:
    path = scratch.path("words")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{word}\n" for word in keywords(count))
    return path
