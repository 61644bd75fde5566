"""Numbers and times as reports print them."""

import datetime

_IEC = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
DAY_S = 86400
# Narrow no-break space between groups of digits.
THIN = "\u202f"


def count(value: int) -> str:
    """Returns `1 234 567`, with narrow no-break spaces."""
    return f"{value:,}".replace(",", THIN)


def size(value: int) -> str:
    """Returns bytes in the largest IEC unit that leaves at least one, rounded down: `1.4 GiB`."""
    unit = 0
    while unit < len(_IEC) - 1 and value >= 1024 ** (unit + 1):
        unit += 1
    if unit == 0:
        return "1 byte" if value == 1 else f"{value} bytes"
    tenths = value * 10 // 1024**unit
    whole = tenths // 10
    return f"{whole} {_IEC[unit]}" if whole >= 100 or tenths % 10 == 0 else f"{whole}.{tenths % 10} {_IEC[unit]}"


def percent(part: int, whole: int) -> str:
    """Returns a share. Only the whole is 100 %, and only nothing is 0 %."""
    if whole <= 0:
        return "–"
    if part == 0 or part == whole:
        return "0 %" if part == 0 else "100 %"
    share = 100 * part / whole
    if share < 0.1:
        return "< 0.1 %"
    if share > 99.9:
        return "> 99.9 %"
    return f"{share:.1f} %"


def moment(seconds: int) -> str:
    """Returns a file's time in UTC, or a dash for none. Times beyond the calendar stay numbers."""
    if seconds == 0:
        return "–"
    try:
        when = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    except OverflowError:
        return f"{count(seconds)} s"
    return when.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")


def date(day: int) -> datetime.date:
    """Returns the day with this number, counted from 1970-01-01."""
    return datetime.date(1970, 1, 1) + datetime.timedelta(days=day)


def duration(seconds: float) -> str:
    """Returns `3 h 12 min`, `4 min 10 s` or `7.2 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def clock(seconds: float) -> str:
    """Returns `5:54.13` or `1:02:03.40`; a time that rounds to zero is `<0:00.01`."""
    hundredths = round(seconds * 100)
    if hundredths == 0 and seconds > 0:
        return "<0:00.01"
    minutes, rest = divmod(hundredths, 6000)
    shown = f"{rest // 100:02}.{rest % 100:02}"
    return f"{minutes}:{shown}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{shown}"
