"""Import every classifier of torchvision at its least size: imported or refused with its reason, and how exact.

python benchmarks/imported_models.py [NAME ...] > imported.md
"""

from __future__ import annotations

import sys
from typing import List, Tuple

from framework_compare.errors import UsageError
from framework_compare.importing import import_level
from framework_compare.importing.sources import Source
from framework_compare.importing.tracing import Tracer

# Sizes to try in turn; the first that a model takes is its least one here.
SIZES = (32, 64, 75, 96, 224)
FAMILIES = (
    *("alexnet", "convnext_base", "convnext_large", "convnext_small", "convnext_tiny"),
    *("densenet121", "densenet161", "densenet169", "densenet201"),
    *(f"efficientnet_b{number}" for number in range(8)),
    *("efficientnet_v2_l", "efficientnet_v2_m", "efficientnet_v2_s", "googlenet", "inception_v3", "maxvit_t"),
    *("mnasnet0_5", "mnasnet0_75", "mnasnet1_0", "mnasnet1_3"),
    *("mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small"),
    *(f"regnet_x_{size}" for size in ("16gf", "1_6gf", "32gf", "3_2gf", "400mf", "800mf", "8gf")),
    *(f"regnet_y_{size}" for size in ("128gf", "16gf", "1_6gf", "32gf", "3_2gf", "400mf", "800mf", "8gf")),
    *("resnet101", "resnet152", "resnet18", "resnet34", "resnet50"),
    *("resnext101_32x8d", "resnext101_64x4d", "resnext50_32x4d"),
    *(f"shufflenet_v2_x{width}" for width in ("0_5", "1_0", "1_5", "2_0")),
    *("squeezenet1_0", "squeezenet1_1", "swin_b", "swin_s", "swin_t", "swin_v2_b", "swin_v2_s", "swin_v2_t"),
    *(f"vgg{depth}{norm}" for depth in (11, 13, 16, 19) for norm in ("", "_bn")),
    *("vit_b_16", "vit_b_32", "vit_h_14", "vit_l_16", "vit_l_32", "wide_resnet101_2", "wide_resnet50_2"),
)


def row(name: str, tracer: Tracer) -> Tuple[str, ...]:
    """Name, size, parameters, worst error of the level "import" and where, or why it is refused."""
    reason = ""
    for size in SIZES:
        try:
            traced = tracer(Source(name=name, kind="torchvision", text=f"torchvision:{name}", stem=name), [size])
        except UsageError as error:
            reason = str(error)
            if "forward fails" in reason or "torch.export" in reason:
                continue
            break
        graph, exact = traced.graphs[size], traced.exact
        assert exact is not None
        level = import_level.judge(graph, exact, traced.judge)
        verdict = "holds" if level.passed else "fails"
        notes = "; ".join(traced.notes)
        return name, str(size), f"{graph.parameter_count():,}", f"{level.error:.1e} {verdict} ({level.where})", notes
    return name, "", "", "refused", reason


def main(names: List[str]) -> None:
    tracer = Tracer()
    print("| model | size | parameters | level import | remarks |\n|---|---|---|---|---|", flush=True)
    for name in names or FAMILIES:
        print("|", " | ".join(row(name, tracer)), "|", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
