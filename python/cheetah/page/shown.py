"""Text from evidence in a page: escaped, with unprintable characters shown as codes in boxes."""

from markupsafe import Markup, escape

from cheetah.page.visible import TEXT_CHARS_MAX, text_parts


def evidence(text: str | None, chars_max: int = TEXT_CHARS_MAX) -> Markup:
    """Returns a name or an excerpt, isolated from the direction of the surrounding text."""
    if text is None:
        return Markup("")
    parts = (
        Markup('<span class="code">{}</span>').format(piece.shown) if piece.coded else escape(piece.shown)
        for piece in text_parts(text, chars_max)
    )
    return Markup("<bdi>{}</bdi>").format(Markup("").join(parts))


def path(text: str | None) -> Markup:
    """Returns a path in which lines may break after each slash."""
    return Markup(str(evidence(text)).replace("/", "/<wbr>").replace("</<wbr>", "</"))
