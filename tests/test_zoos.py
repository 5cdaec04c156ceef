"""Models of transformers by name and keywords, judged before one is made."""

import sys
import types

import pytest

from framework_compare.errors import UsageError
from framework_compare.importers.torch import zoos
from framework_compare.plan.values import split


class Config:
    def __init__(self, **given: object) -> None:
        self.n_layer, self.n_head = 12, 12
        self.text_config = types.SimpleNamespace(n_layer=12, to_dict=dict)
        vars(self).update(given)  # as transformers does

    def to_dict(self) -> object:
        return vars(self)


@pytest.fixture(autouse=True)
def transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    auto = types.SimpleNamespace(for_model=lambda name, **given: Config(**given))
    causal = types.SimpleNamespace(from_config=lambda config, attn_implementation: Made(config))
    module = types.SimpleNamespace(AutoConfig=auto, CONFIG_MAPPING={"gpt2": Config}, AutoModelForCausalLM=causal)
    monkeypatch.setitem(sys.modules, "transformers", module)  # type: ignore[arg-type]


class Made:
    def __init__(self, config: Config) -> None:
        self.config = config


def test_fields_are_those_of_the_configuration_and_keywords_of_the_model_before_them() -> None:
    made = zoos.configured("transformers", "gpt2:n_layer=2,head=lm")
    assert isinstance(made, Made) and (made.config.n_layer, made.config.n_head) == (2, 12)
    given = "gpt_nano,transformers:gpt2:n_layer=2,n_head=4, transformers:vit:image_size=[32,32],head=image,timm:a"
    gpt, vit = "transformers:gpt2:n_layer=2,n_head=4", "transformers:vit:image_size=[32,32],head=image"
    assert split(given) == ["gpt_nano", gpt, vit, "timm:a"]
    name = "llama:rope_parameters={'type':'linear','factor':2.0},sizes=[[1,2],[3,4]],pair=(1,2),word='a,b',head=lm"
    keywords = {"rope_parameters": {"type": "linear", "factor": 2.0}, "sizes": [[1, 2], [3, 4]]}
    assert zoos.split(name) == ("llama", {**keywords, "pair": (1, 2), "word": "a,b", "head": "lm"})
    assert split(f"gpt_nano,transformers:{name},timm:a") == ["gpt_nano", f"transformers:{name}", "timm:a"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpt2:n_layers=2", "the configuration 'gpt2' has no field 'n_layers'; similar names: n_layer"),
        ("gpt2:to_dict=2", "the configuration 'gpt2' has no field 'to_dict'"),
        (
            "gpt2:text_config={'n_layers':2}",
            "the configuration 'gpt2.text_config' has no field 'n_layers'; similar names: n_layer",
        ),
        ("gpt2:other=2", "the configuration 'gpt2' has no field 'other'"),
        ("gpt3", "transformers has no configuration 'gpt3'; similar names: gpt2"),
        ("gpt2:n_layer", "'n_layer' is not a keyword; allowed: NAME:KEY=VALUE,KEY=VALUE"),
        ("gpt2:head=top", "head is 'top'; allowed: lm, masked, image, class"),
    ],
)
def test_a_field_or_name_that_does_not_exist_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        zoos.configured("transformers", text)
    assert str(refused.value) == words
