"""What installed packages bring by their entry points: the adapter of another's framework, under the entry's name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PLUGINS = Path(__file__).parent / "plugins"


def installed(folder: Path, group: str, line: str, module: str) -> None:
    """A distribution as pip leaves it: a module, and metadata with one entry point."""
    info = folder / "fc_other-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fc-other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{line}\n")
    (folder / "fc_other.py").write_text(module)


def test_an_adapter_of_another_package_is_listed_and_diagnosed(tmp_path: Path) -> None:
    adapter = f"{PLUGINS / 'tiny.py'}:TinyTrainer"
    module = (
        "from framework_compare.registry import Framework\n"
        f"FRAMEWORK = Framework('theirs', {adapter!r}, '', 'numpy', ((3, 8), (3, 99)))\n"
    )
    installed(tmp_path, "framework_compare.adapters", "other = fc_other:FRAMEWORK", module)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def asked(code: str) -> "list[str]":
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
        return list(json.loads(done.stdout.splitlines()[-1]))

    listing = "from framework_compare.cli.listing import document"
    listed = asked(f"import json; {listing}; print(json.dumps(document(1)['frameworks']))")
    assert "other" in listed and "theirs" not in listed
    doctor = "from framework_compare.doctor import examine"
    assert "other" in asked(
        f"import json; {doctor}; print(json.dumps([one.framework for one in examine().frameworks]))"
    )
