"""Tolerances that are numbers in the source of a test: each holds on the machine of whoever wrote it."""

import ast
import re
import textwrap
from typing import Dict, Iterator, List

# Calls that compare, and the place of the first positional argument that is a tolerance.
COMPARING = {"approx": 1, "allclose": 2, "isclose": 2, "assert_allclose": 2, "assert_close": 2}
COMPARING.update(dict.fromkeys(("assert_almost_equal", "assert_array_almost_equal", "assertAlmostEqual"), 2))
TOLERANCES = re.compile(r"(rel|abs|rtol|atol|decimal|places|delta)$|(^|_)(rel_tol|abs_tol|tol|tolerance)s?$", re.I)
SMALL = 1e-2  # what is compared with less is a difference


def literal_bounds(source: str) -> List[str]:
    """Return the lines of Python source that have one, those of programs within its strings included."""
    tree, lines = ast.parse(source), source.splitlines()
    finder = _Finder(tree)
    found = [lines[bound.lineno - 1].strip() for node in ast.walk(tree) for bound in finder.bounds(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            try:
                found += literal_bounds(textwrap.dedent(node.value))
            except (SyntaxError, ValueError):  # text, or a part of a program
                continue
    return list(dict.fromkeys(found))


class _Finder:
    def __init__(self, tree: ast.AST) -> None:
        self.named: Dict[str, ast.expr] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.named[node.targets[0].id] = node.value

    def bounds(self, node: ast.AST) -> Iterator[ast.expr]:
        return filter(self._is_number, self._tolerances(node))

    def _tolerances(self, node: ast.AST) -> Iterator[ast.expr]:
        if isinstance(node, ast.Call):
            first = COMPARING.get(_name(node.func), len(node.args))
            yield from node.args[first:]
            yield from (one.value for one in node.keywords if TOLERANCES.search(one.arg or ""))
        elif isinstance(node, ast.arguments):
            places = [*node.posonlyargs, *node.args]
            defaults = [*zip(places[len(places) - len(node.defaults) :], node.defaults)]
            for argument, default in (*defaults, *zip(node.kwonlyargs, node.kw_defaults)):
                if default is not None and TOLERANCES.search(argument.arg):
                    yield default
        elif isinstance(node, ast.Assign):
            if any(TOLERANCES.search(_name(target)) for target in node.targets):
                yield node.value
        elif isinstance(node, ast.Compare) and all(
            isinstance(one, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for one in node.ops
        ):
            sides = [node.left, *node.comparators]
            differs = any(_is_difference(one) for one in sides)
            yield from (one for one in sides if differs or (self._is_number(one) and _is_small(one)))

    def _is_number(self, node: ast.AST, depth: int = 0) -> bool:
        """Return whether an expression has no value but those of numbers in the source; 0 asks for what is exact."""
        if isinstance(node, ast.Constant):
            return isinstance(node.value, (int, float)) and not isinstance(node.value, bool) and node.value != 0
        if isinstance(node, ast.Name):
            return depth < 5 and node.id in self.named and self._is_number(self.named[node.id], depth + 1)
        if isinstance(node, ast.UnaryOp):
            return self._is_number(node.operand, depth)
        if isinstance(node, ast.BinOp):
            return self._is_number(node.left, depth) and self._is_number(node.right, depth)
        if isinstance(node, ast.IfExp):
            return self._is_number(node.body, depth) or self._is_number(node.orelse, depth)
        return False


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_difference(node: ast.AST) -> bool:
    """Return whether an expression is the size of a difference: abs(a - b), np.abs(a / b - 1).max()."""
    calls = [one for one in ast.walk(node) if isinstance(one, ast.Call) and _name(one.func) in ("abs", "fabs", "norm")]
    return any(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub) for call in calls for one in ast.walk(call))


def _is_small(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and 0 < abs(node.value) < SMALL
