"""The command line of a triage."""

import pytest

from cheetah.triage import cli


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("64KiB", 64 << 10), ("100M", 100 << 20), ("4 GiB", 4 << 30)])
def test_a_file_limit_is_parsed_as_a_size(text: str, size: int) -> None:
    assert cli.parse(["case.raw", "--out", "case", "--max-file", text]).max_file == size


@pytest.mark.parametrize("text", ["0", "0GiB", "many", "-1", "1.5GiB", "12 parsecs", "\u0661"])
def test_an_invalid_file_limit_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.parse(["case.raw", "--out", "case", f"--max-file={text}"])
    assert ended.value.code == 2
    assert f"{text!r} is not a size: write 100MiB or 4GiB" in capsys.readouterr().err
