"""The command line of a triage."""

import pytest

from cheetah.triage import cli


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1B", 1),
        ("4096", 4096),
        ("64KiB", 64 << 10),
        ("100M", 100 << 20),
        ("4 GiB", 4 << 30),
        ("1.5G", 3 << 29),
        ("12GB", 12 * 10**9),
        ("0.5TiB", 1 << 39),
    ],
)
def test_a_file_limit_is_parsed_as_a_size(text: str, size: int) -> None:
    assert cli.parse(["case.raw", "--out", "case", "--max-file", text]).max_file == size


@pytest.mark.parametrize("text", ["0", "0GiB", "many", "-1", "12 parsecs", "\u0661", "1", "9e3", "99999999999TiB"])
def test_an_invalid_file_limit_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.parse(["case.raw", "--out", "case", f"--max-file={text}"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"'{text}'" in said and "write" in said


def test_case_data_and_the_size_of_a_sector_are_options() -> None:
    words = ["--case-number", "42", "--evidence-number", "7", "--examiner", "A. Tester", "--sector-size", "4096"]
    settings = cli.parse(["case.raw", "--out", "case", *words, "--description", "a disk", "--notes", "none"])
    assert dict(settings.case) == {
        "case_number": "42",
        "evidence_number": "7",
        "examiner": "A. Tester",
        "description": "a disk",
        "notes": "none",
    }
    assert settings.sector_size == 4096


def test_an_impossible_size_of_a_sector_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.parse(["case.raw", "--out", "case", "--sector-size", "513"])
    assert ended.value.code == 2 and "not the size of a sector" in capsys.readouterr().err
