"""Groups days into bars: as many as can be told apart, each a natural period."""

import collections.abc
import dataclasses
import datetime

Step = collections.abc.Callable[[datetime.date], datetime.date]


@dataclasses.dataclass(frozen=True)
class Unit:
    """A period: its name, its first day given any day in it, and the first day of the next one."""

    name: str
    days: int
    floor: Step
    after: Step


@dataclasses.dataclass(frozen=True)
class Bar:
    """From `first` to `last`, inclusive."""

    first: datetime.date
    last: datetime.date
    value: int

    @property
    def when(self) -> str:
        """Returns the days it covers."""
        return self.first.isoformat() if self.first == self.last else f"{self.first} to {self.last}"


def _months(number: int) -> tuple[Step, Step]:
    def floor(day: datetime.date) -> datetime.date:
        return datetime.date(day.year, (day.month - 1) // number * number + 1, 1)

    def after(day: datetime.date) -> datetime.date:
        month = floor(day).month - 1 + number
        return datetime.date(day.year + month // 12, month % 12 + 1, 1)

    return floor, after


def _monday(day: datetime.date) -> datetime.date:
    return day - datetime.timedelta(days=day.weekday())


DAY = Unit("day", 1, lambda day: day, lambda day: day + datetime.timedelta(days=1))
WEEK = Unit("week", 7, _monday, lambda day: _monday(day) + datetime.timedelta(days=7))
UNITS = (
    DAY,
    WEEK,
    Unit("month", 30, *_months(1)),
    Unit("quarter", 91, *_months(3)),
    Unit("year", 365, *_months(12)),
)


def unit_for(first: datetime.date, last: datetime.date, bars_max: int) -> Unit:
    """Returns the shortest unit that needs no more bars than that."""
    days = (last - first).days + 1
    return next((unit for unit in UNITS if days <= unit.days * bars_max), UNITS[-1])


def bars(
    days: collections.abc.Mapping[datetime.date, int], first: datetime.date, last: datetime.date, unit: Unit
) -> list[Bar]:
    """Returns bars from `first` to `last`, including empty ones."""
    sums: dict[datetime.date, int] = {}
    for day, value in days.items():
        if first <= day <= last:
            start = unit.floor(day)
            sums[start] = sums.get(start, 0) + value
    made, start = [], unit.floor(first)
    while start <= last:
        end = unit.after(start)
        made.append(Bar(max(start, first), min(end - datetime.timedelta(days=1), last), sums.get(start, 0)))
        start = end
    return made


def main_span(days: collections.abc.Mapping[datetime.date, int]) -> tuple[datetime.date, datetime.date] | None:
    """Returns the first and last day to draw. A few isolated days far from all others are cut off: at most one time in
    200 at either end, and only if at most half of the span remains."""
    if not days:
        return None
    order = sorted(days)
    first, last = order[0], order[-1]
    spare = sum(days.values()) // 200
    low, high = _inner(order, days, spare), _inner(order[::-1], days, spare)
    if (last - low).days * 2 <= (last - first).days:
        first = low
    if (high - first).days * 2 <= (last - first).days:
        last = high
    return first, last


def _inner(order: list[datetime.date], days: collections.abc.Mapping[datetime.date, int], spare: int) -> datetime.date:
    seen = 0
    for day in order:
        seen += days[day]
        if seen > spare:
            return day
    return order[-1]
