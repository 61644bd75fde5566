"""Sizes, and how figures are printed."""

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


def iec(size_bytes: int) -> str:
    """Returns an exact size as `cheetah` parses it, in the largest unit that divides it."""
    for scale, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes % scale == 0 and size_bytes:
            return f"{size_bytes // scale}{unit}"
    return f"{size_bytes}"


def short(value: float) -> str:
    """Returns a figure with three significant digits and spaced thousands: 1.23, 45.6, 789, 12 300."""
    if value == 0:
        return "0"
    digits = 0
    while digits < 3 and abs(value) * 10**digits < 99.95:
        digits += 1
    if digits:
        return f"{value:.{digits}f}"
    magnitude = 10 ** max(0, len(str(int(abs(value)))) - 3)
    return f"{round(value / magnitude) * magnitude:,}".replace(",", " ")
