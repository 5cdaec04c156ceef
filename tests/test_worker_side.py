"""The worker's side of the boundary: what it imports, and that nothing else is staged with it."""

import ast
import sys
from pathlib import Path

import pytest

from framework_compare import registry
from framework_compare.launch import staging

ALLOWED = {"numpy", "PIL", "simplejpeg", "framework_compare"}
OWN = {
    **{"torch": {"torch", "torchvision"}, "tensorflow": {"tensorflow", "keras"}, "mxnet": {"mxnet"}},
    **{"paddle": {"paddle"}, "jax": {"jax", "optax", "grain"}, "singa": {"singa"}},
    **{"keras-tensorflow": {"keras", "tensorflow"}, "keras-jax": {"keras", "jax", "optax", "grain"}},
    "keras-torch": {"keras", "torch", "torchvision"},
    "lightning": {"lightning", "torch", "torchvision"},
    "flax": {"flax", "jax", "optax", "grain"},
    "onnx": {"onnx", "google"},  # protobuf's package is google.protobuf
}


def imported(path: Path) -> set:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    unread = {inner for node in typing for inner in ast.walk(node)}  # by type checkers alone
    names = set()
    for node in ast.walk(tree):
        if node in unread:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return names


STAGED = {
    **{name: (name, registry.framework(name)) for name in OWN},
    **{f"{name}-importer": (name, entry) for name, entry in registry.IMPORTERS.items()},
}


@pytest.mark.parametrize("framework, entry", STAGED.values(), ids=STAGED)
def test_staged_source_is_complete_and_imports_only_what_a_worker_has(framework, entry, own_cache):
    folder = staging.stage(entry)
    paths = {path: path.relative_to(folder).with_suffix("").parts for path in folder.rglob("*.py")}
    staged = {".".join(parts).removesuffix(".__init__") for parts in paths.values()}
    for path in paths:
        names = imported(path)
        outside = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - ALLOWED
        assert outside <= OWN[framework], f"{path.relative_to(folder)} imports {sorted(outside - OWN[framework])}"
        ours = {name for name in names if name.startswith("framework_compare")}
        missing = {n for n in ours if n not in staged and n.rpartition(".")[0] not in staged}
        assert not missing, f"{path.relative_to(folder)} imports {sorted(missing)}, which is not staged"


def test_adapters_import_their_framework_only_when_asked():
    folders = [(name, registry.source_path(entry.trainer)) for name, entry in registry.FRAMEWORKS.items()]
    folders += [(name, registry.source_path(entry.importer)) for name, entry in registry.IMPORTERS.items()]
    for name, folder in folders:
        for path in folder.glob("*.py"):
            top = {n.split(".")[0] for node in ast.parse(path.read_text()).body for n in _names(node)}
            assert not top & OWN[name], f"{path.parent.name}/{path.name} imports its framework at the top"


def _names(node: ast.stmt) -> list:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [str(node.module)] if isinstance(node, ast.ImportFrom) else []


def test_the_same_source_is_staged_once_and_a_changed_adapter_apart(own_cache, tmp_path):
    adapter = tmp_path / "mine.py"
    adapter.write_text("class T: pass\n")
    entry = registry.Framework("mine", f"{adapter}:T", "", "numpy", ((3, 8), (3, 99)))
    first, again = staging.stage(entry), staging.stage(entry)
    adapter.write_text("class T: name = 'mine'\n")
    assert first == again != staging.stage(entry)
    assert staging.trainer_target(entry) == "framework_compare.adapters.mine:T"
