"""Lies of object stores to `acquire` when it uploads an image: in their answers, and in what they store."""

from collections.abc import Callable
from functools import partial

from attack.liars import HOSTILE, check_words, each
from attack.lying_store import CHECKSUM, Answer, Store, Upload, checksum, served
from attack.stage import Broken, Stage

PART_BYTES = 8 << 20
SIZE = PART_BYTES + (64 << 10)
"""Two parts."""
OBJECT, STOLEN = "/evidence/disk.raw", "/stolen/disk.raw"
HOSTILE_TEXT = "".join(f"&#x{ord(letter):x};" for letter in HOSTILE)
DENIED = f"<Error><Code>Denied{HOSTILE_TEXT}</Code><Message>no {HOSTILE_TEXT}</Message></Error>".encode()
SETTINGS = {
    "AWS_ACCESS_KEY_ID": "AKIATEST",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_CONFIG_FILE": "/dev/null",
}


def _begins_hostile(store: Store, upload: Upload) -> Answer:
    name = "u/../../x?a=b&c " + HOSTILE
    store.uploads[name] = upload
    return Answer(body=f"<R><UploadId>u/../../x?a=b&amp;c {HOSTILE_TEXT}</UploadId></R>".encode())


def _answers(answer: Answer) -> Callable[..., Answer]:
    """Answers so, and does nothing."""
    return lambda *_: answer


def _confirms_another(store: Store, upload: Upload, number: int, content: bytes) -> Answer:
    return Answer(headers={**Store.put_part(store, upload, number, content).headers, CHECKSUM: checksum(b"another")})


def _refuses_second(store: Store, upload: Upload, number: int, content: bytes) -> Answer:
    """Refuses the second part, once."""
    if number == 2 and not upload.pages:
        return Answer(403, DENIED)
    return Store.put_part(store, upload, number, content)


def _corrupt(_: Store, parts: list[bytes]) -> bytes:
    joined = b"".join(parts)
    return joined[:1000] + bytes([joined[1000] ^ 1]) + joined[1001:]


def _without_last(_: Store, parts: list[bytes]) -> bytes:
    return b"".join(parts[:-1])


def _swapped(_: Store, parts: list[bytes]) -> bytes:
    return b"".join(reversed(parts))


def _of_another(store: Store, path: str, upload: Upload) -> Answer:
    """Makes the object of another upload."""
    upload.token = "another"
    return Store.complete(store, path, upload)


def _lists_what_is_lost(store: Store, upload: Upload) -> Answer:
    """Loses the first part, and lists it."""
    listed = Store.list_parts(store, upload)
    upload.parts[1] = bytes(len(upload.parts[1]))
    return listed


def _absurd_parts() -> Answer:
    numbers = (0, -1, 1 << 32, 1 << 64, 1, 1)
    listed = "".join(
        f"<Part><PartNumber>{number}</PartNumber><Size>{(1 << 64) - 1}</Size><ETag>{HOSTILE_TEXT}</ETag></Part>"
        for number in numbers
    )
    return Answer(body=f"<R>{listed}<IsTruncated>false</IsTruncated></R>".encode())


def _pages(_: Store, upload: Upload) -> Answer:
    """Lists another page, without end."""
    part = f"<Part><PartNumber>{upload.pages}</PartNumber><Size>1</Size><ETag>e</ETag></Part>"
    marker = f"<IsTruncated>true</IsTruncated><NextPartNumberMarker>{upload.pages}</NextPartNumberMarker>"
    return Answer(body=f"<R>{part * 2000}{marker}</R>".encode())


TRUNCATED = b"<R><IsTruncated>true</IsTruncated><NextPartNumberMarker>1</NextPartNumberMarker></R>"
LIES: dict[str, dict[str, Callable[..., object]]] = {
    "an upload id that controls the terminal": {"begin": _begins_hostile},
    "no upload id": {"begin": _answers(Answer(body=b"<R></R>"))},
    "an endless upload id": {"begin": _answers(Answer(body=b"<R><UploadId>" + b"u" * (1 << 20) + b"</UploadId></R>"))},
    "a redirected part": {"put_part": _answers(Answer(307, headers={"Location": STOLEN}))},
    "a redirected completion": {"complete": _answers(Answer(307, headers={"Location": STOLEN}))},
    "a refused part": {"put_part": _answers(Answer(403, DENIED))},
    "a part refused in success": {"put_part": _answers(Answer(200, DENIED, {"ETag": '"e"'}))},
    "another checksum": {"put_part": _confirms_another},
    "parts without ETags": {"put_part": _answers(Answer())},
    "parts that are not stored": {"put_part": _answers(Answer(headers={"ETag": '"e"'}))},
    "an error as success": {"complete": _answers(Answer(200, DENIED))},
    "an empty success": {"complete": _answers(Answer())},
    "a success of nothing": {"complete": _answers(Answer(body=b"<CompleteMultipartUploadResult/>"))},
    "the object of another": {"complete": _of_another},
    "a changed byte": {"joined": _corrupt},
    "a part that is left out": {"joined": _without_last},
    "parts in another order": {"joined": _swapped},
}
HARMLESS = ("an upload id that controls the terminal",)
ENDLESS = "a list without end"
"""It is asked for again and again, which takes 20 s."""
LISTS: dict[str, Callable[..., Answer]] = {
    "the truth": Store.list_parts,
    "a list of what is lost": _lists_what_is_lost,
    "a list of absurd parts": _answers(_absurd_parts()),
    "a list that begins again": _answers(Answer(body=TRUNCATED)),
    "a list of endless pages": _pages,
    ENDLESS: _answers(Answer(body=b"<Part>" * 10_000, is_endless=True)),
    "a list that is denied": _answers(Answer(403, DENIED)),
    "a list that is no list": _answers(Answer(body=b"\xff\x1b[2J<" * 1000)),
    "a list of an unknown upload": _answers(Answer(404, DENIED)),
}
"""Told when an interrupted upload is continued."""


def _uploaded(stage: Stage, store: Store, content: bytes, runs: int) -> int:
    """Uploads an image; returns the last exit code. With 0, the store has the source's bytes."""
    folder = stage.path("")
    folder.mkdir()
    source = folder / "source.raw"
    source.write_bytes(content)
    with served(store) as address:
        there = stage.having(**SETTINGS, AWS_ENDPOINT_URL=address).within(folder)
        for _ in range(runs):
            ran = there.run("acquire", source, f"s3:/{OBJECT}", "--verify", "--timeout", "2")
            check_words(ran)
            if STOLEN in store.objects:
                raise Broken("a redirection of an upload is followed")
            if ran[0] == 0 and store.objects.get(OBJECT, (b"",))[0] != content:
                raise Broken("an upload is called complete, and the store has other bytes")
    return ran[0]


def uploads(stage: Stage) -> None:
    """Uploads an image to each store: it has the source's bytes, or the acquisition fails in order."""
    content = stage.random.randbytes(SIZE)

    def case(name: str) -> None:
        store = type("Liar", (Store,), LIES[name])()
        length = SIZE if "joined" in LIES[name] else SIZE - PART_BYTES
        if _uploaded(stage, store, content[:length], 1) == 0 and name not in HARMLESS:
            raise Broken("it is believed")

    def resumed(name: str) -> None:
        methods = {"put_part": _refuses_second, "list_parts": LISTS[name]}
        store = type("Liar", (Store,), methods)()
        code = _uploaded(stage, store, content, 2)
        if code != 0 and name == "the truth":
            raise Broken(f"an upload that was interrupted is not continued, but ends with {code}")

    lists = [name for name in LISTS if name != ENDLESS or not stage.quick]
    each({name: partial(case, name) for name in LIES} | {name: partial(resumed, name) for name in lists})
