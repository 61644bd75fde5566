"""Paths as text: names that are not UTF-8 in arguments, JSON and reports."""

import json
import os
from pathlib import Path

import pytest
from conftest import MIB, noise

import cheetah
from cheetah import options, path_text
from cheetah.open_options import absolute_source
from cheetah.triage import cli

ODD = os.fsdecode(b"caf\xe9 100%.raw")
ODD_TEXT = "bytes:caf%E9 100%25.raw"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (b"/cases/caf\xe9.raw", "bytes:/cases/caf%E9.raw"),
        ("/cases/caf\u00e9 100%.raw".encode(), "/cases/caf\u00e9 100%.raw"),
        (b"100%\xff\n\x1b", "bytes:100%25%FF%0A%1B"),
        (b"bytes:x", "bytes:bytes:x"),
        (b"a\x1b[2J.raw", "a\x1b[2J.raw"),
        (b"\xf0\x9f\x90", "bytes:%F0%9F%90"),
    ],
)
def test_every_path_has_the_same_text_as_in_rust_and_is_recovered_from_it(path: bytes, text: str) -> None:
    assert path_text.to_text(os.fsdecode(path)) == text
    assert os.fsencode(path_text.to_path(text)) == path


def test_a_percent_sign_without_digits_and_a_typed_text_are_unchanged() -> None:
    assert path_text.to_path("bytes:a%zz%4") == "a%zz%4"
    assert path_text.typed_to_text("bytes:caf%E9") == "bytes:caf%E9"
    assert path_text.typed_to_text(os.fsdecode(b"caf\xe9")) == "bytes:caf%E9"


def test_a_source_is_named_by_an_absolute_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"bytes:{str(tmp_path).replace('%', '%25')}/caf%E9 100%25.raw"
    for source in (ODD, ODD_TEXT, Path(ODD), tmp_path / ODD):
        assert absolute_source(source) == text
    assert absolute_source(f"raw:{ODD}") == f"raw:{text}"
    assert absolute_source(Path("bytes:x")) == path_text.to_text(str(tmp_path / "bytes:x"))
    assert absolute_source("nbd://host/caf%E9") == "nbd://host/caf%E9"


def test_an_image_with_such_a_name_is_opened_and_shared(tmp_path: Path) -> None:
    content = noise(MIB + 5, 1)
    (tmp_path / ODD).write_bytes(content)
    for source in (tmp_path / ODD, str(tmp_path / ODD), path_text.to_text(tmp_path / ODD)):
        with cheetah.open(source) as device:
            assert device.read() == content
            device.source.encode()
    with cheetah.share(tmp_path / ODD) as shared, cheetah.open(shared.uri) as device:
        assert device.read() == content


def test_the_settings_of_a_triage_hold_texts_and_paths(tmp_path: Path) -> None:
    for name in (ODD, "words"):
        (tmp_path / name).write_bytes(b"x")
    typed = [str(tmp_path / ODD), "--out", str(tmp_path / "out"), "--keywords", path_text.to_text(tmp_path / ODD)]
    settings = cli.parse(typed)
    assert settings.source == path_text.to_text(tmp_path / ODD)
    assert settings.keywords == (str(tmp_path / ODD),)
    assert settings.binding()["keywords"][0]["name"] == ODD_TEXT


def test_results_hold_texts() -> None:
    told = {"a": [{"b": (ODD, 1, None, 2.5)}], ODD: "x"}
    assert path_text.texts(told) == {"a": [{"b": [ODD_TEXT, 1, None, 2.5]}], ODD_TEXT: "x"}
    assert path_text.texts("half of a pair: \ud800") == "half of a pair: \\ud800"


def test_an_error_about_such_a_name_is_valid_json(capsys: pytest.CaptureFixture[str]) -> None:
    options.answer(f"{ODD}: no such file", 1)
    told = json.loads(capsys.readouterr().out)
    told["error"].encode()
    assert "caf" in told["error"] and "xE9" in told["error"].replace("xe9", "xE9")
