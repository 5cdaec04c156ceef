"""The ops of graphs that each adapter computes, read off its tables: writes adapter_operators.md, which a test compares.

python docs/operators.py
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Dict, FrozenSet, List

from framework_compare.graph import OPS
from framework_compare.graph import primitives as table

PATH = Path(__file__).parent / "adapter_operators.md"
NAMES = ("torch", "tensorflow", "jax", "paddle", "mxnet", "singa")
HEAD = """# Ops by adapter

`python docs/operators.py` writes this page from the tables of the adapters. `own`: the adapter has an op of that name;
`lowered`: [others](operators.md#what-an-adapter-computes) compute it in its place; empty: the adapter does not declare it.
"""


def tables(name: str) -> tuple[FrozenSet[str], FrozenSet[str]]:
    """Ops that an adapter has itself, and those that it declares."""
    network = importlib.import_module(f"framework_compare.adapters.{name}.network")
    return network.HAS, network.OPS


def is_primitive(op: str) -> bool:
    groups = (table.UNARY, table.BINARY, table.COMPARISONS, table.REDUCTIONS, table.ALONG, table.OTHERS)
    return any(op in group for group in groups)


def section(title: str, ops: List[str], of: Dict[str, tuple[FrozenSet[str], FrozenSet[str]]]) -> List[str]:
    lines = [f"## {title}", "", f"|op|{'|'.join(NAMES)}|", f"|{'---|' * (1 + len(NAMES))}"]
    for op in ops:
        words = ["own" if op in of[n][0] else "lowered" if op in of[n][1] else "" for n in NAMES]
        lines.append(f"|{op}|{'|'.join(words)}|")
    totals = [str(sum(op in of[name][1] for op in ops)) for name in NAMES]
    return [*lines, f"|of {len(ops)}|{'|'.join(totals)}|", ""]


def page() -> str:
    of = {name: tables(name) for name in NAMES}
    layers, primitives = ([op for op in sorted(OPS) if is_primitive(op) == kind] for kind in (False, True))
    return "\n".join([HEAD, *section("Layers", layers, of), *section("Primitives", primitives, of)])


if __name__ == "__main__":
    PATH.write_text(page(), encoding="utf-8")
