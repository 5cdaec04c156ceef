"""The parity ladder in five frameworks on every workload, in every execution that a framework has.

python benchmarks/workload_parity.py [WORKLOAD ...]     # benchmarks/results/workload_parity.json
python benchmarks/workload_parity.py --table            # the file as Markdown
python benchmarks/workload_parity.py --device cuda --frameworks torch --python torch=PYTHON --save FILE

On the CPU unless asked, one thread, float32, with each workload's own optimizer. Verdicts in the file are not sought
again, unless their workload is named.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Dict, List

from imported_parity import FRAMEWORKS, entry

from framework_compare import registry
from framework_compare.errors import UsageError
from framework_compare.parity import verify
from framework_compare.plan.values import by_framework

OUT = Path(__file__).parent / "results" / "workload_parity.json"
EXECUTIONS = ("default", "eager", "graph", "compiled")


def table(workloads: Dict[str, Any]) -> List[str]:
    """One row per workload; a cell has the executions that hold their levels, and the status of the others."""
    lines = [f"| workload | {' | '.join(FRAMEWORKS)} |", f"|{'---|' * (1 + len(FRAMEWORKS))}"]
    for name, executions in workloads.items():
        cells = []
        for framework in FRAMEWORKS:
            told = {one: found[framework]["status"] for one, found in executions.items() if framework in found}
            held = [one for one, status in told.items() if status == "passed"]
            others = [f"{one}: {status}" for one, status in told.items() if status not in ("passed", "unsupported")]
            cells.append(", ".join([*held, *others]))
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", choices=[*registry.workloads(), []])
    parser.add_argument("--executions", default=",".join(EXECUTIONS))
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--python", action="append", help="FRAMEWORK=PATH of an interpreter that has it")
    parser.add_argument("--save", type=Path, default=OUT)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    out = arguments.save
    where = verify.Where(python=by_framework("--python", arguments.python))
    settings = dict(where=where, device=arguments.device, threads=1, say=print)
    found: Dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    if arguments.table:
        print("\n".join(table(found)))
        return
    for execution in arguments.executions.split(","):
        for name in arguments.workloads or registry.workloads():
            executions = found.setdefault(name, {})
            if execution in executions and not arguments.workloads:
                continue
            try:
                verdicts = verify.verify(arguments.frameworks.split(","), name, execution=execution, **settings)
                executions[execution] = {verdict.framework: entry(verdict) for verdict in verdicts}
            except UsageError as error:
                print(f"{name}, {execution}: {error}")
            out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(execution, table({name: executions})[-1], flush=True)


if __name__ == "__main__":
    main()
