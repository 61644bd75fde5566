"""Evidence in a page: escaped, and what cannot be shown stands as its code in a box."""

from markupsafe import Markup, escape

from cheetah.page.visible import TEXT_CHARS_MAX, pieces


def evidence(text: str | None, chars_max: int = TEXT_CHARS_MAX) -> Markup:
    """A name or an excerpt. It is apart from the words around it, whichever way it is written."""
    if text is None:
        return Markup("")
    parts = (
        Markup('<span class="code">{}</span>').format(piece.shown) if piece.coded else escape(piece.shown)
        for piece in pieces(text, chars_max)
    )
    return Markup("<bdi>{}</bdi>").format(Markup("").join(parts))


def path(text: str | None) -> Markup:
    """A path; lines may break behind each slash."""
    return Markup(str(evidence(text)).replace("/", "/<wbr>").replace("</<wbr>", "</"))
