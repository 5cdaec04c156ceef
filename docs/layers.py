"""Draw docs/layers.svg from the floors of tests/test_layering.py: `python docs/layers.py`."""

from __future__ import annotations

import ast
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
DRAWING = ROOT / "docs" / "layers.svg"
WIDTH, MARGIN, GAP, HEIGHT, STEP = 960, 12, 8, 32, 40
FILLS = {False: "#e8eef7", True: "#fbe9d7"}


def tables() -> dict[str, object]:
    """The literals of the layering test by name."""
    tree = ast.parse((ROOT / "tests" / "test_layering.py").read_text(encoding="utf-8"))
    values = {}
    for node in tree.body:
        target = node.target if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [None])[0]
        if isinstance(target, ast.Name) and target.id in ("FLOORS", "WORKER_SIDE"):
            values[target.id] = ast.literal_eval(node.value)
    return values


def is_folder(name: str) -> bool:
    return any((folder / name).is_dir() for folder in (ROOT, ROOT / "framework_compare"))


def drawing() -> str:
    """Floors from the top down, each a row of boxes; those that run in workers have a colour of their own."""
    floors, worker_side = tables()["FLOORS"], tables()["WORKER_SIDE"]
    boxes = []
    for row, names in enumerate(floors):
        width = (WIDTH - 2 * MARGIN - GAP * (len(names) - 1)) / len(names)
        for column, name in enumerate(names):
            x, y = MARGIN + column * (width + GAP), MARGIN + row * STEP
            label = f"{name}/" if is_folder(name) else f"{name}.py"
            boxes.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{HEIGHT}" rx="4" '
                f'fill="{FILLS[name in worker_side]}" stroke="#5b6b80"/>\n'
                f'<text x="{x + width / 2:.1f}" y="{y + HEIGHT / 2 + 5}" text-anchor="middle">{escape(label)}</text>'
            )
    y = MARGIN + len(floors) * STEP + 12
    legend = "Each imports itself and lower rows only. Orange: copied into a worker, with one adapter."
    height = y + 16
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="15">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *boxes,
            f'<text x="{MARGIN}" y="{y}" font-size="14">{escape(legend)}</text>',
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    DRAWING.write_text(drawing(), encoding="utf-8")
