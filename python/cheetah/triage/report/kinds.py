"""The kinds of findings, in words."""

import typing


class Kind(typing.NamedTuple):
    """What a kind of finding is called, and what it means and does not mean."""

    label: str
    meaning: str


_KINDS = {
    "wanted-hash": Kind(
        "Wanted file",
        "The file's hash is on a list of wanted files: its content is the listed one, byte for byte, whatever its name is.",
    ),
    "yara": Kind(
        "YARA rule",
        "A rule matched the content. What a match means is for the rule's author to say; rules can match by chance.",
    ),
    "keyword": Kind(
        "Keyword",
        "A word that was looked for stands in the content, in one of the encodings searched. Read it in its place.",
    ),
    "name": Kind(
        "Keyword in a name",
        "A word that was looked for is in the name of a file, folder or stream. That says nothing of what is in it.",
    ),
    "mismatch": Kind(
        "Type and name differ",
        "The content is of another type than the name's extension says. That hides files, and also happens without any intent.",
    ),
    "deleted": Kind(
        "Deleted",
        "The file's name or its metadata is marked as deleted. Its content may have been overwritten by other files since.",
    ),
}


def of(kind: str) -> Kind:
    """The words for a kind; one that is not known here is called as it is."""
    return _KINDS.get(kind) or Kind(kind.replace("-", " ").capitalize() or "Other", "See the rule and its description.")
