"""Interleaving: A B C, B C A, C A B, so that what drifts on the machine drifts under everybody."""

from bench.units import short


def interleave(label, rounds, contenders, show="rate"):
    """Calls every contender once a round and returns, for each, the list of what it returned.

    `contenders` maps names to functions that measure and return {metric: value}; `show` is the metric that is
    printed, or several of them.
    """
    names = list(contenders)
    results = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            results[name].append(contenders[name]())
    several = not isinstance(show, str)
    for metric in show if several else [show]:
        for name in names:
            _print(f"{label} {metric}" if several else label, name, [result.get(metric) for result in results[name]])
    return results


def _print(label, name, values):
    values = sorted(value for value in values if value is not None)
    if values:
        spread = f"[{short(values[0])} – {short(values[-1])}]"
        print(f"  {label:<46} {name:<34} {short(values[len(values) // 2]):>9}  {spread}", flush=True)
