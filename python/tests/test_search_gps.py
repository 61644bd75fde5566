"""Positions that `search` finds in Exif metadata, compared with those that Pillow wrote and reads."""

import fractions
import io
from pathlib import Path

import pytest

import cheetah

Image = pytest.importorskip("PIL.Image")

GPS_DIRECTORY = 0x8825
PLACES = (
    # Latitude, longitude, altitude below the sea, and what is expected.
    (("N", (52, 31, 12.0288)), ("E", (13, 24, 17.8344)), (0, 34.5), "52.520008,13.404954,34.5,2026-11-29T06:21:10Z"),
    (("S", (33, 51, 24.4224)), ("W", (70, 39, 59.4)), (1, 3.5), "-33.856784,-70.666500,-3.5,2026-11-29T06:21:10Z"),
)


def _picture(
    latitude: tuple[str, tuple[float, ...]], longitude: tuple[str, tuple[float, ...]], altitude: tuple[int, float]
) -> bytes:
    exif = Image.Exif()
    gps = exif.get_ifd(GPS_DIRECTORY)
    gps.update(
        {
            1: latitude[0],
            2: tuple(fractions.Fraction(part).limit_denominator(10_000) for part in latitude[1]),
            3: longitude[0],
            4: tuple(fractions.Fraction(part).limit_denominator(10_000) for part in longitude[1]),
            5: bytes([altitude[0]]),
            6: fractions.Fraction(altitude[1]),
            7: (6, 21, 10),
            29: "2026:11:29",
        }
    )
    exif[GPS_DIRECTORY] = gps
    written = io.BytesIO()
    Image.new("RGB", (16, 16)).save(written, "JPEG", exif=exif)
    return written.getvalue()


def test_a_position_that_pillow_wrote_is_found_with_its_values(tmp_path: Path) -> None:
    content = bytearray(3 << 20)
    # The second picture lies across the seam of two parts.
    offsets = (4096, (1 << 20) - 100)
    for offset, (latitude, longitude, altitude, _) in zip(offsets, PLACES, strict=True):
        picture = _picture(latitude, longitude, altitude)
        content[offset : offset + len(picture)] = picture
    path = tmp_path / "disk.raw"
    path.write_bytes(content)
    with cheetah.open(path) as device:
        found = list(device.search(kinds=["gps"]))
    assert [hit.text for hit in found] == [expected for *_, expected in PLACES]
    for hit in found:
        assert content[hit.offset : hit.offset + 6] == b"Exif\0\0"


def test_pillow_reads_the_position_that_is_expected() -> None:
    for latitude, longitude, altitude, expected in PLACES:
        with Image.open(io.BytesIO(_picture(latitude, longitude, altitude))) as picture:
            gps = picture.getexif().get_ifd(GPS_DIRECTORY)
        degrees = [
            sum(float(part) / 60**place for place, part in enumerate(gps[tag])) * (-1 if gps[tag - 1] in "SW" else 1)
            for tag in (2, 4)
        ]
        assert [f"{one:.6f}" for one in degrees] == expected.split(",")[:2]
