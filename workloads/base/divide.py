"""A number of things in proportion to weights."""

from collections.abc import Sequence


def divided(count: int, weights: Sequence[float]) -> list[int]:
    """`count` in proportion to the weights, by largest remainder; of equal remainders the first ones."""
    total = sum(weights)
    exact = [count * w / total for w in weights]
    shares = [int(x) for x in exact]
    short = count - sum(shares)
    by_remainder = sorted(range(len(weights)), key=lambda k: (shares[k] - exact[k], k))
    for k in range(short):
        shares[by_remainder[k % len(weights)]] += 1
    for _ in range(-short):  # rounding may also have shared out one too many
        shares[shares.index(max(shares))] -= 1
    return shares
