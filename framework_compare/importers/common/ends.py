"""Inputs and outputs of a foreign model, by their names."""

from typing import Sequence, Tuple

from framework_compare.errors import UsageError
from framework_compare.graph import Field


def in_order(names: Sequence[str], fields: Sequence[Field]) -> Tuple[Field, ...]:
    """Return what each input is given: the array of its name, or, where not all have one, those in their order."""
    named = {field.name: field for field in fields}
    if len(names) != len(fields):
        raise UsageError(
            f"it takes {len(names)} inputs ({', '.join(names)}), and the data have {len(fields)} ({', '.join(named)})"
        )
    return tuple(named[name] for name in names) if set(names) == set(named) else tuple(fields)


def output_number(names: Sequence[str], name: str) -> int:
    """The number of the output that is trained: one by its name or number, the first where none is named."""
    numbers = {"": 0, **{str(number): number for number in range(len(names))}}
    numbers.update({own: number for number, own in enumerate(names)})
    if name not in numbers:
        raise UsageError(f"it has no output {name!r}; allowed: {', '.join(names)}")
    return numbers[name]
