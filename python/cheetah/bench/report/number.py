"""A figure with its origin."""

import re
from typing import NamedTuple

from markupsafe import Markup, escape

from cheetah.page.shown import evidence
from cheetah.page.visible import plain

NAME_CHARS_MAX = 200


class Number(NamedTuple):
    """A figure: PART/STEP/STATE or a figure's id, its target, the statistic of its samples, its value, and the value
    as text. `stat` is "median", "min", "max", "ratio", "ratio-min", "ratio-max", or the name of a sample's field for
    the median of that; "spread" is half the range relative to the median; "busy.X" is how busy X was, and "held.X" the
    same in the repetitions limited by it; "sum" is over all steps."""

    figure: str
    target: str
    stat: str
    value: float
    text: str

    def __html__(self) -> str:
        """Returns the element."""
        return str(
            Markup('<data class="n" data-figure="{0}" data-target="{1}" data-stat="{2}" data-value="{4}">{3}</data>')
            .format(plain(self.figure, NAME_CHARS_MAX), plain(self.target, NAME_CHARS_MAX), self.stat, self.text, exact(self.value))
        )  # fmt: skip

    def __str__(self) -> str:
        """Returns the text for a terminal."""
        return self.text


SentencePart = str | Number
Sentence = tuple[SentencePart, ...]


def exact(value: float) -> str:
    """Returns a value that reads back exactly."""
    return repr(int(value) if float(value).is_integer() and abs(value) < 1e15 else float(value))


def html(sentence: Sentence) -> Markup:
    """Returns a sentence for the page."""
    return Markup("").join(escape(piece) for piece in sentence)


def name(text: str, chars_max: int) -> Markup:
    """Returns a target's name, in which lines may break between parts."""
    return Markup(re.sub(r"([:@,])", r"\1<wbr>", str(evidence(text, chars_max))))


def listed(text: str, chars_max: int) -> Markup:
    """Returns a list, in which lines may break after commas."""
    return Markup(str(evidence(text, chars_max)).replace(",", ",<wbr>"))
