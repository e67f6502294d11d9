"""What `horae why` says of a job in a pool that works by shares: its part, what it is owed, and what GPUs are worth."""

from __future__ import annotations

from collections.abc import Sequence

from horae.model.decisions import Limit
from horae.model.explanations import ShapeShare, ShareExplanation, Solve, TypeWorth
from horae.model.plain import Plain, to_plain

LIMITS = {
    Limit.NOWHERE: "no GPU type on which it runs has any GPUs here",
    Limit.TIME: "its own time: it is to run all of it",
    Limit.SCARCE: "GPUs: all of those it could use better are given out",
    Limit.DROPPED: "its deadline cannot be kept with those of the others, and counts no more",
}


def hours(at: float) -> str:
    return f"{at / 3600:,.2f} h"


def describe_share(item: ShareExplanation) -> list[str]:
    """A line for each thing there is to say."""
    lines = [f"  share     {_shapes(item)}"]
    if item.solve is not None:
        lines += _solve(item.solve)
    if item.unsolved:
        lines.append(f"  unsolved  {item.unsolved}; the shares of {hours(item.shared_at)} stand")
    return lines


def plain_share(item: ShareExplanation) -> Plain:
    """As plain data, with words for what keeps the job from more."""
    plain = to_plain(item)
    if item.solve is not None and item.solve.limit is not None:
        limit = item.solve.limit
        plain["solve"]["limit"] = {"kind": limit.name.lower(), "text": LIMITS[limit]}
    return plain


def _shapes(item: ShareExplanation) -> str:
    told = [shape for shape in item.shapes if shape.fraction or shape.received_seconds or round(shape.owed_seconds)]
    if not told:
        return "none yet"
    return "; ".join(_shape(shape) for shape in told) + f" (by {hours(item.counted_at)})"


def _shape(item: ShapeShare) -> str:
    owed = round(item.owed_seconds)
    debt = f"is owed {hours(owed)}" if owed > 0 else f"is {hours(-owed)} ahead" if owed < 0 else "is owed nothing"
    return f"{item.fraction:.1%} of its time on {item.shape}, has had {hours(item.received_seconds)} and {debt}"


def _solve(item: Solve) -> list[str]:
    lines = [] if item.limit is None else [f"  no more   {LIMITS[item.limit]}"]
    lines.append(f"  the aim   {item.objective}: {item.value:.4g}, and no shares have better than {item.bound:.4g}")
    worth = _worth(item.types)
    return [*lines, f"  GPUs      {worth}"] if worth else lines


def _worth(types: Sequence[TypeWorth]) -> str:
    """Prices in words: those of the dearest as they are, of the others by it."""
    if not types:
        return ""
    dearest, *others = types
    if not dearest.price:
        full = [each.accelerator for each in types if each.is_full]
        state = f"{_listed(full)} {'is' if len(full) == 1 else 'are'} full, but" if full else "no type is full, and"
        return f"{state} one more GPU would better nothing"
    lead = f"{dearest.accelerator} is full; one more would better that by {dearest.price:.3g}"
    worth = [f"{each.accelerator} is worth {_part(each, dearest)}" for each in others]
    return "; ".join([lead, *worth])


def _part(item: TypeWorth, dearest: TypeWorth) -> str:
    return f"{item.relative:.2f} of a {dearest.accelerator}" if round(item.relative, 2) else "nothing"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
