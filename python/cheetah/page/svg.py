"""SVG drawings. In a page they carry class names, and the style sheet sets the colours."""

import collections.abc
import html

from markupsafe import Markup


class Drawing:
    """An `<svg>` with a title and a description for screen readers. Lengths are in units of its `width`."""

    def __init__(self, name: str, width: float, height: float, title: str, description: str):
        self._name, self._width, self._height = name, width, height
        self._title, self._description = title, description
        self._parts: list[str] = []

    def add(self, tag: str, content: str = "", tip: str = "", **attributes: object) -> None:
        """Adds an element. `tip` appears when the pointer rests on it; in attribute names `_` stands for `-`."""
        inner = (f"<title>{html.escape(tip)}</title>" if tip else "") + html.escape(content)
        self._parts.append(f"<{tag}{_attributes(attributes)}>{inner}</{tag}>")

    def rectangle(self, x: float, y: float, width: float, height: float, kind: str, tip: str = "") -> None:
        """Adds a filled rectangle."""
        self.add("rect", tip=tip, x=x, y=y, width=width, height=height, class_=kind)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "rule") -> None:
        """Adds a straight line."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)

    def label(self, x: float, y: float, content: str, anchor: str = "start") -> None:
        """Adds text at a point; `anchor` is start, middle or end."""
        self.add("text", content, x=x, y=y, text_anchor=anchor)

    def polyline(self, points: collections.abc.Iterable[tuple[float, float]], **attributes: object) -> None:
        """Adds straight lines from point to point."""
        placed = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        self._parts.append(f"<polyline{_attributes({'points': placed, 'fill': 'none', **attributes})}/>")

    def __html__(self) -> str:
        """Returns the element."""
        return self._element("")

    def file(self) -> str:
        """Returns a file of its own: on white, an element a line. No style sheet reaches it."""
        size = {"xmlns": "http://www.w3.org/2000/svg", "width": self._width, "height": self._height}
        ground = f"<rect{_attributes({'width': self._width, 'height': self._height, 'fill': 'white'})}/>\n"
        return self._element(ground, "\n", **size, font_family="sans-serif", font_size=12) + "\n"

    def _element(self, ground: str, between: str = "", **attributes: object) -> str:
        head = _attributes({
            **attributes, "id": self._name, "viewBox": f"0 0 {_number(self._width)} {_number(self._height)}",
            "role": "img", "aria-labelledby": f"{self._name}-title {self._name}-text",
        })  # fmt: skip
        words = (
            f'<title id="{self._name}-title">{html.escape(self._title)}</title>'
            f'<desc id="{self._name}-text">{html.escape(self._description)}</desc>'
        )
        return f"<svg{head}>{words}{ground}{between.join(self._parts)}</svg>"


def meter(parts: collections.abc.Sequence[tuple[str, int]], whole: int, kind: str = "meter") -> Markup:
    """Returns a bar as wide as its container: parts side by side, each a class and its share of `whole`. It is hidden
    from screen readers, so the numbers must stand beside it. No part is too thin to be seen."""
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
