"""Attention of users' networks: which masks, heads and windows are one layer of the graph, and the same function."""

from pathlib import Path
from typing import Optional

import pytest
from own_net import imported

from framework_compare.errors import UsageError
from framework_compare.importing.imports import resolve

TURNED = """
q, k, v = (self.conv(x)[:, :, :4, :4].flatten(2).transpose(1, 2).unflatten(2, (2, 2)).transpose(1, 2) for _ in range(3))
        turn = torch.arange(16.0)[None, None, :, None]
        q, k = (y * turn.cos() + torch.cat([-y[..., 1:], y[..., :1]], -1) * turn.sin() for y in (q, k))
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(16, 16, dtype=torch.bool){mask})
        return self.fc(y.transpose(1, 2).flatten(2)[:, -1])
"""


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize(("mask", "causal"), [(".tril()[None, None]", True), ("", None)])
def test_attention_of_rotated_heads_is_one_layer(mask: str, causal: Optional[bool], tmp_path: Path) -> None:
    model = imported(tmp_path, TURNED.format(mask=mask))
    (attention,) = (node for node in model().nodes if node.op == "Attention")
    assert attention.attrs.get("causal") == causal and "Softmax" not in {node.op for node in model().nodes}


HIDING = """
q, k, v = (self.conv(x)[:, :, :4, :4].flatten(2).transpose(1, 2).unflatten(2, (2, 2)).transpose(1, 2) for _ in range(3))
        seen = {mask}
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.fc(y.transpose(1, 2).flatten(2).mean(1))
"""


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize(
    "mask",
    [
        "x[:, :1, :4, :4].flatten(2)[:, None] > 0",
        "(x[:, :1, :4, :4].flatten(2)[:, None] > 0) & torch.ones(16, 16, dtype=torch.bool).tril(-1)",
        "torch.ones(16, 16, dtype=torch.bool).tril(-1)",
        "torch.zeros(16, 16).masked_fill(torch.ones(16, 16, dtype=torch.bool).triu(), float('-inf'))",
    ],
    ids=["computed", "and-causal", "whole-row", "whole-row-of-numbers"],
)
def test_masks_of_attention_may_be_computed_and_hide_everything(mask: str, tmp_path: Path) -> None:
    imported(tmp_path, HIDING.format(mask=mask))


SWIN = """
from torchvision.models.swin_transformer import SwinTransformer
def build():
    return SwinTransformer([4, 4], 16, [2, 2], [2, 4], [{window}, {window}], num_classes=5)
"""


@pytest.mark.usefixtures("together")
def test_attention_in_shifted_windows_is_the_same_function_and_windows_that_are_padded_are_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "swin.py").write_text(SWIN.format(window=4))
    _, (model,) = resolve(f"{tmp_path / 'swin.py'}:build", 32)
    assert {"Windows", "FromWindows", "RelativeBias", "Roll", "Slice"} <= {node.op for node in model().nodes}
    assert model.level is not None and model.level.passed
    (tmp_path / "swin.py").write_text(SWIN.format(window=3))
    with pytest.raises(UsageError, match="windows of 3 x 3 in a map of 8 x 8, which is padded"):
        resolve(f"{tmp_path / 'swin.py'}:build", 32)
