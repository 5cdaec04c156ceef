"""The parity ladder in five frameworks on one imported classifier of each family of torchvision, its smallest member.

python benchmarks/imported_parity.py [FAMILY ...]                      # benchmarks/results/imported_parity.json
python benchmarks/imported_parity.py ViT --frameworks torch,jax        # in pieces, which the file joins
python benchmarks/imported_parity.py --table                           # the file as Markdown

At 64 pixels, or the least size that a model can be traced at; on the CPU, one thread, float32. Verdicts in the file are
not sought again, unless their family is named.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Dict, List

from framework_compare.errors import UsageError
from framework_compare.importing.imports import resolve
from framework_compare.parity import verify
from framework_compare.results.parity import Parity

OUT = Path(__file__).parent / "results" / "imported_parity.json"
FRAMEWORKS = ("torch", "jax", "tensorflow", "paddle", "mxnet")
FAMILIES = {
    "SqueezeNet": ("squeezenet1_1", 64),
    "ShuffleNet": ("shufflenet_v2_x0_5", 64),
    "MobileNetV3": ("mobilenet_v3_small", 64),
    "RegNet": ("regnet_y_400mf", 64),
    "EfficientNet": ("efficientnet_b0", 64),
    "GoogLeNet": ("googlenet", 64),
    "DenseNet": ("densenet121", 64),
    "ResNet": ("resnet18", 64),
    "Inception": ("inception_v3", 299),  # its second head takes no less
    "ConvNeXt": ("convnext_tiny", 64),
    "Swin": ("swin_t", 224),  # its windows fill the map at this size
    "VGG": ("vgg11", 64),
    "ViT": ("vit_b_32", 224),
}


def entry(verdict: Parity) -> Dict[str, Any]:
    """What the file keeps of a verdict: levels asked by number, and why one does not hold."""
    return {
        "status": verdict.status,
        "version": verdict.version,
        "reason": verdict.reason,
        "seconds": verdict.seconds,
        "diverges": verdict.diverges,
        "levels": {
            f"{level.number}": {
                "passed": level.passed,
                "where": level.where,
                "error": level.error,
                "ratio": level.ratio,
            }
            for level in verdict.levels
            if level.asked
        },
    }


def known() -> Dict[str, Any]:
    return json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}


def table(families: Dict[str, Any]) -> List[str]:
    lines = [f"| family | model | size | {' | '.join(FRAMEWORKS)} |", f"|{'---|' * (3 + len(FRAMEWORKS))}"]
    for family, one in families.items():
        cells = [
            one.get("frameworks", {}).get(name, {}).get("status", one.get("reason", "not asked")) for name in FRAMEWORKS
        ]
        lines.append(f"| {family} | {one['model']} | {one['size']} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", choices=[*FAMILIES, []])
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS))
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    families = known()
    if arguments.table:
        print("\n".join(table(families)))
        return
    frameworks = arguments.frameworks.split(",")
    for family, (model, size) in FAMILIES.items():
        asked = set(frameworks) <= set(families.get(family, {}).get("frameworks", {}))
        if family not in (arguments.families or FAMILIES) or (asked and not arguments.families):
            continue
        one: Dict[str, Any] = {"model": model, "size": size}
        try:
            name, _ = resolve(f"torchvision:{model}", size)
            verdicts = verify.verify(frameworks, name, image_size=size, threads=1, say=print)
            one["frameworks"] = {verdict.framework: entry(verdict) for verdict in verdicts}
        except UsageError as error:
            one["reason"] = str(error)
        families = known()  # another process may have written meanwhile
        before = families.get(family, {}).get("frameworks", {})
        if before and "frameworks" in one:
            one["frameworks"] = {**before, **one["frameworks"]}
        families[family] = one
        OUT.write_text(json.dumps(dict(sorted(families.items())), indent=1) + "\n", encoding="utf-8")
        print(table({family: one})[-1], flush=True)


if __name__ == "__main__":
    main()
