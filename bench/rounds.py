"""Interleaving: A B C, B C A, C A B, so that what drifts on the machine drifts under everybody."""

from bench.units import short


def interleave(label, rounds, contenders, show="rate"):
    """Calls every contender once a round and returns, for each, the list of what it returned.

    `contenders` maps names to functions that measure and return {metric: value}; `show` is the metric printed.
    """
    names = list(contenders)
    results = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            results[name].append(contenders[name]())
    for name in names:
        values = sorted(result[show] for result in results[name] if result.get(show) is not None)
        if values:
            middle = short(values[len(values) // 2])
            print(f"  {label:<44} {name:<34} {middle:>9}  [{short(values[0])} – {short(values[-1])}]", flush=True)
    return results
