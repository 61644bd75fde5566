"""The kinds of findings in words."""

import typing


class FindingKind(typing.NamedTuple):
    """The name of a kind of finding, and its meaning and limits."""

    label: str
    meaning: str


_KINDS = {
    "wanted-hash": FindingKind(
        "Wanted file",
        "The file's hash is on a list of wanted files: its content is identical to the listed file, under any name.",
    ),
    "yara": FindingKind(
        "YARA rule",
        "A rule matched the content. The rule's author defines what a match means; rules can match by chance.",
    ),
    "keyword": FindingKind(
        "Keyword",
        "A keyword occurs in the content, in one of the encodings searched. Read it in context.",
    ),
    "name": FindingKind(
        "Keyword in a name",
        "A keyword occurs in the name of a file, folder or stream. That says nothing about its content.",
    ),
    "mismatch": FindingKind(
        "Type and name differ",
        "The content is of another type than the name's extension says. That hides files, but also happens without intent.",
    ),
    "deleted": FindingKind(
        "Deleted",
        "The file's name or its metadata is marked as deleted. Its content may have been overwritten by other files since.",
    ),
}


def of(kind: str) -> FindingKind:
    """Returns the words for a kind; an unknown kind keeps its own name."""
    return _KINDS.get(kind) or FindingKind(
        kind.replace("-", " ").capitalize() or "Other", "See the rule and its description."
    )
