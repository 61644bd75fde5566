"""Drawings in a page: text that a browser paints. No styles here, but names of classes; the style sheet colours them."""

import collections.abc
import html

from markupsafe import Markup


class Drawing:
    """An `<svg>` that says what it shows to those who do not see it. Lengths are in units of its own `width`."""

    def __init__(self, name: str, width: float, height: float, title: str, description: str):
        self._name, self._width, self._height = name, width, height
        self._title, self._description = title, description
        self._parts: list[str] = []

    def add(self, tag: str, content: str = "", tip: str = "", **attributes: object) -> None:
        """One element. `tip` shows when the pointer rests on it; in names of attributes `_` stands for `-`."""
        inner = (f"<title>{html.escape(tip)}</title>" if tip else "") + html.escape(content)
        self._parts.append(f"<{tag}{_attributes(attributes)}>{inner}</{tag}>")

    def rectangle(self, x: float, y: float, width: float, height: float, kind: str, tip: str = "") -> None:
        """A filled one."""
        self.add("rect", tip=tip, x=x, y=y, width=width, height=height, class_=kind)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "rule") -> None:
        """A straight one."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)

    def label(self, x: float, y: float, content: str, anchor: str = "start") -> None:
        """Words at a point; `anchor` is start, middle or end."""
        self.add("text", content, x=x, y=y, text_anchor=anchor)

    def __html__(self) -> str:
        """The element. Its title and description are what a screen reader says."""
        head = _attributes({
            "id": self._name, "viewBox": f"0 0 {_number(self._width)} {_number(self._height)}", "role": "img",
            "aria-labelledby": f"{self._name}-title {self._name}-text",
        })  # fmt: skip
        words = (
            f'<title id="{self._name}-title">{html.escape(self._title)}</title>'
            f'<desc id="{self._name}-text">{html.escape(self._description)}</desc>'
        )
        return f"<svg{head}>{words}{''.join(self._parts)}</svg>"


def meter(parts: collections.abc.Sequence[tuple[str, int]], whole: int, kind: str = "meter") -> Markup:
    """A bar as wide as its place: parts side by side, each a class and how much of `whole` it is. The numbers have to stand
    beside it, as it says nothing to those who do not see it. What is there is never too thin to be seen."""
    drawn, x = "", 0.0
    for name, amount in parts:
        if amount > 0 and whole > 0:
            width = max(100 * amount / whole, 0.4)
            drawn += f'<rect class="{name}" x="{_number(x)}%" width="{_number(width)}%" height="100%"/>'
            x += width
    return Markup(f'<svg class="{kind}" aria-hidden="true" focusable="false">{drawn}</svg>')


def _attributes(attributes: collections.abc.Mapping[str, object]) -> str:
    words = []
    for name, value in attributes.items():
        name = "class" if name == "class_" else name.replace("_", "-")
        words.append(f' {name}="{html.escape(_number(value) if isinstance(value, float | int) else str(value))}"')
    return "".join(words)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


__all__ = ["Drawing", "meter"]
