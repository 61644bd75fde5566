"""The programs beside which the engine is measured, each on one processor, and what each of them is asked for."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Callable, Sequence

from bench.scratch import Scratch
from bench.tools import yara_count
from bench.tools.limited import run_limited
from cheetah.bench.verbs import Enter

RIPGREP, GREP, YARA, BULK = "ripgrep", "grep -F", "YARA-X", "bulk_extractor"
# A program that takes longer counts as if it had ended then: faster than it is, and slower by far than the best of them.
LIMIT_S = 60.0
# Words in a rule of YARA.
RULE_WORDS = 1000

# The nearest that the other programs have to `--find all`: the same kinds, without a check of top levels and check digits.
KINDS = (
    r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){1,8}",
    r"(https?|ftp|file|smb|ssh)://[!-~]{1,200}",
    r"([A-Za-z0-9-]{1,63}\.){1,8}(com|org|net|edu|gov|info|io|de|uk|fr|nl|ru|cn|jp|eu)",
    r"([0-9]{1,3}\.){3}[0-9]{1,3}",
    r"([0-9A-Fa-f]{1,4}:){3,7}[0-9A-Fa-f]{1,4}",
    r"\+[0-9][0-9 ().-]{6,18}[0-9]",
    r"\(?[0-9]{3}\)?[ .-][0-9]{3}[ .-][0-9]{4}",
    r"[3-6][0-9]{3}([ -]?[0-9]{4}){2}[ -]?[0-9]{1,7}",
    r"[A-Z]{2}[0-9]{2}( ?[A-Z0-9]{4}){2,7}( ?[A-Z0-9]{1,3})?",
    r"(bc1[a-z0-9]{11,87}|[13][1-9A-HJ-NP-Za-km-z]{25,34})",
)


@dataclasses.dataclass(frozen=True)
class Engine:
    """Another program: its command line for an image, and the count of hits in its output."""

    name: str
    argv: Sequence[str]
    count: Callable[[bytes], int]

    def run(self, image: str, pinned: Enter) -> dict[str, float | None]:
        """Searches the image; returns the seconds and the number of hits, which is None if it was cut off."""
        done = run_limited(pinned([*self.argv, image]), LIMIT_S)
        return {"seconds": done.seconds, "hits": self.count(done.printed) if done.finished else None}


def lines(printed: bytes) -> int:
    """Returns the number of lines, each of which is a hit."""
    return printed.count(b"\n")


def number(printed: bytes) -> int:
    """Returns the number that was printed."""
    return int(printed)


def features(folder: str) -> int:
    """Returns the number of features in the files of bulk_extractor."""
    found = 0
    for name in os.listdir(folder):
        if name.endswith(".txt") and "_histogram" not in name:
            with open(os.path.join(folder, name), "rb") as file:
                found += sum(not line.startswith(b"#") for line in file)
    return found


def rules_of_words(words: Sequence[str]) -> str:
    """Returns rules of YARA for these words of letters."""
    rules = []
    for begin in range(0, len(words), RULE_WORDS):
        strings = "\n".join(f'$w{at} = "{word}"' for at, word in enumerate(words[begin : begin + RULE_WORDS]))
        rules.append(f"rule words{begin} {{ strings:\n{strings}\ncondition: any of them }}")
    return "\n".join(rules)


def rule_of_kinds() -> str:
    """Returns a rule of YARA for the kinds of data."""
    strings = "\n".join(f"$k{at} = /{kind.replace('/', chr(92) + '/')}/" for at, kind in enumerate(KINDS))
    return f"rule kinds {{ strings:\n{strings}\ncondition: any of them }}"


def for_words(scratch: Scratch, path: str) -> list[Engine]:
    """Returns what searches for the words in a list, of the programs that are installed."""
    with open(path, encoding="utf-8") as file:
        rules = rules_of_words(file.read().split())
    # bulk_extractor takes expressions, and words of letters are such.
    bulk = ("-E", "find", "-F", path)
    ripgrep = ("rg", "--no-config", "-a", "-o", "-b", "-j1", "-F", "-f", path)
    grep = ("env", "LC_ALL=C", "grep", "-a", "-o", "-b", "-F", "-f", path)
    return _installed(scratch, [Engine(RIPGREP, ripgrep, lines), Engine(GREP, grep, lines)], rules, bulk)


def for_kinds(scratch: Scratch) -> list[Engine]:
    """Returns what searches for the kinds of data, of the programs that are installed."""
    each = [word for kind in KINDS for word in ("-e", kind)]
    ripgrep = ("rg", "--no-config", "--no-unicode", "-a", "-o", "-b", "-j1", *each)
    return _installed(scratch, [Engine(RIPGREP, ripgrep, lines)], rule_of_kinds(), ("-E", "email", "-e", "accts"))


def _installed(scratch: Scratch, found: list[Engine], rules: str, bulk: Sequence[str]) -> list[Engine]:
    """Adds YARA-X and bulk_extractor, and leaves out programs that are not installed."""
    path = scratch.path("rules")
    with open(path, "w", encoding="utf-8") as file:
        file.write(rules)
    found.append(Engine(YARA, (sys.executable, yara_count.__file__, path), number))
    folder = os.path.join(scratch.ram_dir, scratch.unique("features"))
    found.append(Engine(BULK, ("bulk_extractor", "-j1", "-Z", "-o", folder, *bulk), lambda _: features(folder)))
    return [engine for engine in found if shutil.which(program(engine))]


def program(engine: Engine) -> str:
    """Returns the program of an engine, which may be started with an environment."""
    return next(word for word in engine.argv if word != "env" and "=" not in word)


MEMORY = "memory, read by memcmp"
COMPARING = """
import time
one = b"x" * {size}
other = bytes(bytearray(one))
best = 0.0
for _ in range(5):
    begun = time.perf_counter()
    assert one == other
    best = max(best, 2 * len(one) / (time.perf_counter() - begun))
print(best)
"""


def memory_rate(size_bytes: int, pinned: Enter) -> float:
    """Returns the bytes a second that a processor reads of memory that no cache has, at best."""
    done = run_limited(pinned([sys.executable, "-c", COMPARING.format(size=size_bytes)]), LIMIT_S)
    return float(done.printed)
