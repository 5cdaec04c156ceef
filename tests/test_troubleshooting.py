"""Every message that docs/troubleshooting.md explains is one that the code has; docs/codes.md has every status and exit code."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Iterator

import pytest
from command_line import commands, help_of

from framework_compare.records import STATUSES

ROOT = Path(__file__).parent.parent
PAGE, CODES = ((ROOT / "docs" / name).read_text() for name in ("troubleshooting.md", "codes.md"))


HELPS = {name: help_of(command) for name, command in commands()}
VARYING = re.compile(r"\.\.\.|'[^']*'|\b\d[\d.]*\b")  # what a message fills in


def texts() -> Iterator[str]:
    """Every string of the product; what is filled in is a zero byte."""
    for place in ("framework_compare", "adapters", "models", "datasets"):
        for path in (ROOT / place).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def explained() -> Iterator[str]:
    for line in PAGE.splitlines():
        if line.startswith("| `"):
            yield from re.findall(r"`([^`]+)`", line.split(" | ")[0])


@pytest.fixture(scope="module")
def said() -> str:
    return "\n".join(texts())


@pytest.mark.parametrize("message", sorted(set(explained())))
def test_the_code_says_it(message, said):
    pieces = [piece.strip() for piece in VARYING.split(message)]
    missing = [piece for piece in pieces if piece and piece not in said]
    assert not missing, f"no string of the code has {missing[0]!r}"


def test_every_status_and_every_command_whose_help_names_an_exit_code_has_its_row():
    table = CODES.partition("| status |")[2]
    assert set(re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.M)))) == set(STATUSES)
    named = set(re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| [13] \| (.*?) \|", CODES, re.M))))
    assert named - {"--dry-run"} <= set(HELPS) and named >= {
        name for name, text in HELPS.items() if re.search(r"exit (code|with)", text, re.I)
    }
