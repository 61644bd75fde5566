"""A figure in the page that says where it is from."""

import re
from typing import NamedTuple

from markupsafe import Markup, escape

from cheetah.page.shown import evidence
from cheetah.page.visible import plain

NAME_CHARS_MAX = 200


class Number(NamedTuple):
    """A figure: PART/STEP/STATE or a figure's id, whose it is, which statistic of its samples, its value, and the value as
    people read it. `stat` is "median", "min", "max", "ratio", "ratio-min", "ratio-max" or the name of a field of a
    sample, then it is the median of that; "spread" is half of the range, of the median; "busy.X" is how busy X was, and
    "held.X" the same in those repetitions that were held up by what stands beside it; "sum" is of all steps."""

    figure: str
    target: str
    stat: str
    value: float
    text: str

    def __html__(self) -> str:
        """The element."""
        return str(
            Markup('<data class="n" data-figure="{0}" data-target="{1}" data-stat="{2}" data-value="{4}">{3}</data>')
            .format(plain(self.figure, NAME_CHARS_MAX), plain(self.target, NAME_CHARS_MAX), self.stat, self.text, exact(self.value))
        )  # fmt: skip

    def __str__(self) -> str:
        """For a terminal."""
        return self.text


Piece = str | Number
Sentence = tuple[Piece, ...]


def exact(value: float) -> str:
    """A value that reads back as the same."""
    return repr(int(value) if float(value).is_integer() and abs(value) < 1e15 else float(value))


def html(sentence: Sentence) -> Markup:
    """A sentence in the page."""
    return Markup("").join(escape(piece) for piece in sentence)


def name(text: str, chars_max: int) -> Markup:
    """A target's name; lines may break where its parts end."""
    return Markup(re.sub(r"([:@,])", r"\1<wbr>", str(evidence(text, chars_max))))


def listed(text: str, chars_max: int) -> Markup:
    """What has commas; lines may break behind them."""
    return Markup(str(evidence(text, chars_max)).replace(",", ",<wbr>"))
