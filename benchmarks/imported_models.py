"""Import the classifiers of torchvision, models of timm that a seed draws, or families of transformers: what became of each.

python benchmarks/imported_models.py torchvision                        # benchmarks/results/imported_torchvision.json
python benchmarks/imported_models.py timm --draw 50 --python PYTHON     # PYTHON has torch, torchvision and timm
python benchmarks/imported_models.py timm --seed 7 --list               # names of another draw, small ones first
python benchmarks/imported_models.py torchvision resnet18 vgg11         # these alone, asked again
python benchmarks/imported_models.py torchvision --here                 # traced in this process, which must have torch
python benchmarks/imported_models.py timm --table                       # the file as Markdown
python benchmarks/imported_models.py transformers --python PYTHON       # a small configuration of each family in FAMILIES

Each is imported at the least size that it takes. Small ones come first. Models in the file are not asked again, but for
those that need more memory than there was. With --save another file is written, so that several processes can share a draw;
--join puts their files together.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

from framework_compare import registry
from framework_compare.environments import managed
from framework_compare.errors import UsageError
from framework_compare.graph import Field, Task
from framework_compare.graph.imported_model import Asked
from framework_compare.importing import import_level
from framework_compare.importing.sources import Source
from framework_compare.importing.tracing import Traced, Tracer, trace_in_hand
from framework_compare.launch import staging

Trace = Callable[[Source, Asked], Traced]
RESULTS = Path(__file__).parent / "results"
SEED = 20261136  # another with --seed
STEPS, TOKENS = 16, 99  # of a sequence; different ones
_SIZES = "hidden_size=32,num_hidden_layers=2,num_attention_heads=4,intermediate_size=64"
_GPT = "n_layer=2,n_embd=32,n_head=4,resid_pdrop=0.0,embd_pdrop=0.0,attn_pdrop=0.0"
_IMAGE = "image_size=32,patch_size=8"
# Families of transformers and what makes them small; dropout stays where it is not named.
FAMILIES = {
    "gpt2": f"{_GPT},n_positions=32",
    "gpt_neo": "hidden_size=32,num_layers=2,num_heads=4,attention_types=[[['global'],2]],max_position_embeddings=32",
    "gpt_neox": f"{_SIZES},max_position_embeddings=32",
    "gptj": f"{_GPT},n_positions=32,rotary_dim=4",
    "opt": "hidden_size=32,num_hidden_layers=2,num_attention_heads=4,ffn_dim=64,word_embed_proj_dim=32",
    "bloom": "hidden_size=32,n_layer=2,n_head=4",
    "llama": f"{_SIZES},num_key_value_heads=2",
    "mistral": f"{_SIZES},num_key_value_heads=2,head_dim=8",
    "qwen2": f"{_SIZES},num_key_value_heads=2",
    "qwen3": f"{_SIZES},num_key_value_heads=2,head_dim=8",
    "gemma": f"{_SIZES},num_key_value_heads=2,head_dim=8",
    "phi": f"{_SIZES},num_key_value_heads=4",
    "olmo": f"{_SIZES},num_key_value_heads=4",
    "bert": _SIZES,
    "roberta": f"{_SIZES},max_position_embeddings=40",
    "distilbert": "dim=32,n_layers=2,n_heads=4,hidden_dim=64",
    "electra": f"{_SIZES},embedding_size=32",
    "albert": f"{_SIZES},embedding_size=16",
    "vit": f"{_SIZES},{_IMAGE}",
    "deit": f"{_SIZES},{_IMAGE}",
    "convnext": "hidden_sizes=[8,16,24,32],depths=[1,1,2,1],image_size=64",
    "resnet": "embedding_size=8,hidden_sizes=[8,16,24,32],depths=[1,1,1,1]",
}
PIXELS = {"vit": 32, "deit": 32, "convnext": 64, "resnet": 64}  # of those that take images
SMALL = 64  # pixels to try first of a model of timm that takes several sizes
TOO_SMALL = ("forward fails", "torch.export", "cannot be expressed")  # another size may do

# Asked in the interpreter that traces: names, trained parameters of the module itself, sizes to try.
CATALOGUE = """
import json
import random
import sys
import torch
from framework_compare.adapters.torch.pipeline import import_torchvision
models = import_torchvision(torch).models
zoo, names = sys.argv[1], sys.argv[2:]

def trained(make, name):
    try:
        with torch.device("meta"):
            module = make(name)
    except Exception:
        module = make(name)
    return sum(array.numel() for array in module.parameters() if array.requires_grad)

found = {}
if zoo == "torchvision":
    for name in names or models.list_models(module=models):
        meta = models.get_model_weights(name).DEFAULT.meta
        found[name] = {
            "published": meta["num_params"],
            "module": trained(lambda name: models.get_model(name, weights=None), name),
            "sizes": sorted({max(32, *meta["min_size"]), 64, 224, 299}),
        }
else:
    import timm
    draw, seed = int(names.pop(0)), int(names.pop(0))
    for name in names or random.Random(seed).sample(sorted(timm.list_models()), draw):
        settings = timm.get_pretrained_cfg(name)
        native = max(settings.input_size[1:]) if settings else 224
        fixed = settings is not None and settings.fixed_input_size
        small = [] if fixed or native < SMALL else [SMALL]
        found[name] = {"module": trained(timm.create_model, name), "sizes": sorted({*small, native})}
print(json.dumps(found))
""".replace("SMALL", str(SMALL))


def catalogue(arguments: argparse.Namespace) -> Dict[str, Dict[str, Any]]:
    """Models by name, small ones first."""
    if arguments.zoo == "transformers":
        return {name: {"module": 0, "sizes": [0]} for name in arguments.names or FAMILIES}
    framework = registry.framework("torch")
    environment = managed.ensure("torch", python=sys.executable if arguments.here else arguments.python)
    drawn = [str(arguments.draw), str(arguments.seed)] if arguments.zoo == "timm" else []
    answer = subprocess.run(
        [str(environment.python), "-c", CATALOGUE, arguments.zoo, *drawn, *arguments.names],
        cwd=staging.stage(framework),  # what workers import
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    listed = json.loads(answer.stdout.splitlines()[-1])
    return dict(sorted(listed.items(), key=lambda item: (item[1]["module"], item[0])))


def here(source: Source, asked: Asked) -> Traced:
    """As a module in hand: without a worker for each, which costs three times as much as the rest of a small model."""
    tracing = importlib.import_module("framework_compare.importers.torch.tracing")
    return trace_in_hand(tracing.load(source.to_dict()), asked)


def asked_of(zoo: str, name: str, size: int) -> tuple[Source, Asked]:
    """A model as a source, and what it is asked for."""
    if zoo != "transformers":
        return Source(name=name, kind=zoo, text=f"{zoo}:{name}", stem=name), Asked([size])
    text = f"{name}:{FAMILIES[name]}"
    if name in PIXELS:
        return Source(name=text, kind=zoo, text=f"{zoo}:{text}", stem=name), Asked([PIXELS[name]])
    text += f",vocab_size={TOKENS}"
    tokens, labels = Field("tokens", (STEPS,), "int64", TOKENS), Field("labels", (STEPS,), "int64")
    task = Task((tokens,), labels, 0, "token_cross_entropy", ("accuracy",), "sequence")
    return Source(name=text, kind=zoo, text=f"{zoo}:{text}", stem=name), Asked(tasks=[task])


def outcome(zoo: str, name: str, known: Dict[str, Any], tracer: Trace) -> Dict[str, Any]:
    """What became of a model, ready for the file."""
    reason = ""
    for size in known["sizes"]:
        try:
            traced = tracer(*asked_of(zoo, name, size))
        except Exception as error:  # whatever a model does, the others follow
            reason = str(error) if isinstance(error, UsageError) else f"{name}: {type(error).__name__}: {error}"
            if any(words in reason for words in TOO_SMALL):
                continue
            break
        assert traced.level is not None
        graph, level = next(iter(traced.graphs.values())), traced.level
        return {
            **known,
            "status": "imported" if level.passed else "refused",
            "size": size,
            "layers": len(graph.nodes),
            "ops": sorted({node.op for node in graph.nodes}),
            **({} if known["module"] else {"module": graph.parameter_count()}),
            "parameters": graph.parameter_count(),
            "left_out": sum(int(words.replace(",", "")) for note in traced.notes for words in LEFT_OUT.findall(note)),
            "error": level.error,
            "where": level.where,
            "rounding": level.rounding,
            "judge": level.judge,
            "reason": "" if level.passed else "not the same function",
        }
    status = "not judged" if "GiB of memory" in reason or "memory_limit" in reason else "refused"
    return {**known, "status": status, "reason": reason.partition(": ")[2]}


LEFT_OUT = re.compile(r"([\d,]+) parameters are left out")


def table(entries: Dict[str, Dict[str, Any]]) -> List[str]:
    """One line for each model, in the alphabet's order."""
    lines = ["| model | size | parameters | level import | remarks |", "|---|---|---|---|---|"]
    for name, entry in sorted(entries.items()):
        cells = [name, "", f"{entry['module']:,}", entry["status"], entry.get("reason", "")]
        if entry["status"] == "imported":
            exact = entry["parameters"] + entry["left_out"] == entry["module"]
            remarks = [f"{entry['left_out']:,} left out"] if entry["left_out"] else []
            if entry["error"] > import_level.TOLERANCE:
                remarks.append(f"allowed, as one unit in the last place gives {entry['rounding']:.1e} there")
            size, count = str(entry["size"]), f"{entry['parameters']:,}"
            error = f"{entry['error']:.0e}"
            cells = [name, size, count if exact else f"{count} of {entry['module']:,}", error, "; ".join(remarks)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zoo", choices=("torchvision", "timm", "transformers"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--draw", type=int, default=50)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--list", action="store_true", help="print the names only")
    parser.add_argument("--save", type=Path, help="the file to write; default: imported_ZOO.json in the results")
    parser.add_argument("--join", help="files of several processes, with commas between; nothing is imported")
    parser.add_argument("--python")
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    path = arguments.save or RESULTS / f"imported_{arguments.zoo}.json"
    if arguments.join:
        parts = [json.loads(Path(name).read_text(encoding="utf-8")) for name in arguments.join.split(",")]
        joined = {name: entry for part in parts for name, entry in part.items()}
        path.write_text(json.dumps(joined, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return
    entries: Dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if arguments.table:
        print("\n".join(table(entries)))
        return
    if arguments.list:
        print("\n".join(catalogue(arguments)))
        return
    tracer: Trace = here if arguments.here else Tracer({"torch": arguments.python} if arguments.python else {})
    for name, known in catalogue(arguments).items():
        if name not in arguments.names and entries.get(name, {}).get("status") in ("imported", "refused"):
            continue
        entries[name] = outcome(arguments.zoo, name, known, tracer)
        path.write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        gc.collect()
        print("\n".join(table({name: entries[name]})[2:]), flush=True)


if __name__ == "__main__":
    main()
