"""Models of torchvision, timm and transformers; nothing is downloaded, weights are those of a new model.

Of transformers a configuration makes one.
"gpt2:n_layer=2,n_embd=64": a name of a configuration, and its fields by keyword. `head` is what is on top: "lm"
(each token's next; the default where there is one), "masked", "image" or "class".
"""

from __future__ import annotations

import ast
import difflib
import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Iterable, Tuple

from framework_compare.errors import UsageError
from framework_compare.importers.common.sources import one_line, parts_of
from framework_compare.json_types import Fields

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from transformers import PretrainedConfig

# From the word for what is on top to the class that makes it of a configuration, in the order in which they are tried.
HEADS = {
    "lm": "AutoModelForCausalLM",
    "masked": "AutoModelForMaskedLM",
    "image": "AutoModelForImageClassification",
    "class": "AutoModelForSequenceClassification",
}


def split(text: str) -> Tuple[str, Fields]:
    """Name and keywords of "gpt2:n_layer=2"; a value is a Python literal, else a word."""
    name, _, rest = text.partition(":")
    found: Fields = {}
    for part in parts_of(rest):
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"{part!r} is not a keyword; allowed: NAME:KEY=VALUE,KEY=VALUE")
        try:
            found[key.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            found[key.strip()] = value.strip()
    return name, found


def configured(zoo: str, text: str) -> Module:
    """A module of transformers that takes and gives tensors."""
    transformers = _imported(zoo, zoo)
    name, keywords = split(text)
    head = keywords.pop("head", "")
    if head and head not in HEADS:
        raise UsageError(f"head is {head!r}; allowed: {', '.join(HEADS)}")
    if name not in transformers.CONFIG_MAPPING:
        raise UsageError(f"transformers has no configuration {name!r}{_similar(name, transformers.CONFIG_MAPPING)}")
    _check_fields(name, transformers.AutoConfig.for_model(name), keywords)
    config = transformers.AutoConfig.for_model(name, **keywords)
    config.use_cache = False
    return _bare(_with_head(transformers, config, name, head))


def _check_fields(name: str, plain: PretrainedConfig, keywords: Fields) -> None:
    """UsageError for a field that it does not have: a configuration accepts any, and ignores those."""
    for key, value in keywords.items():
        own = getattr(plain, key, None)
        if not hasattr(plain, key) or callable(own):
            raise UsageError(f"the configuration {name!r} has no field {key!r}{_similar(key, vars(plain))}")
        if isinstance(value, dict) and hasattr(own, "to_dict"):
            _check_fields(f"{name}.{key}", own, value)


def _similar(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=8)
    return f"; similar names: {', '.join(near)}" if near else ""


def _imported(zoo: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"{zoo} is not installed in {sys.executable} ({error}); name an interpreter that has it:"
            " --python torch=/path/to/python, in Python python={'torch': '/path/to/python'}"
        ) from None


def _with_head(transformers: ModuleType, config: PretrainedConfig, name: str, head: str) -> Module:
    for one in [head] if head else HEADS:
        for kind in ("sdpa", "eager"):  # some families are without the fused attention
            try:
                return getattr(transformers, HEADS[one]).from_config(config, attn_implementation=kind)
            except ValueError as error:
                last = error
    raise UsageError(f"transformers makes no model with a head of {name}: {one_line(last)[:200]}")


def _bare(model: Module) -> Module:
    """The model's logits as a function of one tensor; its parameters keep their names."""

    class Logits(type(model)):  # type: ignore[misc]
        def forward(self, fed: Tensor) -> Tensor:
            return super().forward(fed, return_dict=False)[0]

    model.__class__ = Logits
    return model


def listed(zoo: str, name: str) -> Module:
    """A model of torchvision or timm by its name."""
    module = _imported(zoo, "torchvision.models" if zoo == "torchvision" else zoo)
    known = module.list_models()
    if name not in known:
        raise UsageError(f"{zoo} has no model {name!r}{_similar(name, known)}")
    return module.get_model(name, weights=None) if zoo == "torchvision" else module.create_model(name)


MAKERS = {"torchvision": listed, "timm": listed, "transformers": configured}
