"""A network as users write it, through torch's real environment: imported, proved, and refused in one line."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from command_line import run
from nightly import some_nightly
from own_net import imported, write
from processes import write_script

from framework_compare.environments import managed
from framework_compare.errors import UsageError
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.importing.imports import resolve
from framework_compare.importing.tracing import Tracer

PLUGINS = Path(__file__).parents[1] / "plugins"
NET = PLUGINS / "user_net.py"


class Refused(NamedTuple):
    """A network's forward and how it is built, and the words of its refusal."""

    body: str
    words: str
    build: str = "return Net()"
    inputs: str = "x"


LOGITS = "return self.fc(self.conv(x).mean((2, 3)))"
REFUSED: dict[str, Refused] = {
    "fails": Refused("return self.fc(x)", "forward fails on a batch of images"),
    "two inputs": Refused("return x", r"takes 2 inputs \(x, y\)", inputs="x, y"),
    "control flow": Refused(
        "return self.fc(self.conv(x if x.sum() > 0 else -x).mean((2, 3)))",
        r"torch\.export cannot trace it at net\.py:10 \(.*\): it branches on values; "
        "what forward does must not depend on the values of its input",
    ),
    "not finite": Refused(
        "return self.fc(self.conv(x).mean((2, 3))) * float('inf')", "its logits in evaluation are not all finite"
    ),
    "no op": Refused("return self.fc(torch.sort(self.conv(x), 2)[0].mean((2, 3)))", r"sort .*at sort \(net.py:10\)"),
    "precision": Refused(
        "with torch.autocast('cpu', torch.bfloat16):\n            x = self.conv(x)\n"
        "        return self.fc(x.float().mean((2, 3)))",
        r"torch\.autocast, in place of which a study has the setting precision",
    ),
    "all kinds": Refused(
        "y = self.conv(x).sort(2)[0]; return self.fc((y.mean((2, 3)) - x.mean((0, 2, 3))[:1]).cumprod(1))",
        "sort.*(mean|samples).*",
    ),
    "across samples": Refused("y = self.conv(x).mean((2, 3)); return self.fc(y - y.mean(0))", r"mean over axes \[0\]"),
    "nothing trained": Refused("return 2 * x.mean((2, 3))", "no gradient reaches"),
    "one number": Refused("return self.fc(self.conv(x).mean((2, 3)))[:, :1]", "gives 1 number for an image"),
    "in place": Refused("x += 1; return self.fc(self.conv(x).mean((2, 3)))", "changes its images in place"),
    "zero head": Refused(  # behind which no gradient is seen, unless its weights are moved
        LOGITS,
        "not the same function as yours: gradient:conv.* differs",
        build="net = Net(); nn.init.zeros_(net.fc.weight)\n"
        "    net.conv.register_full_backward_pre_hook(lambda m, g: (2 * g[0],)); return net",
    ),
    "random": Refused(
        "return self.fc(nn.functional.dropout(self.conv(x)).mean((2, 3)))",
        "in evaluation its logits .*dropout without training=self.training",
    ),
    "frozen": Refused(
        "return self.fc(self.conv(x.detach()).mean((2, 3)))",
        "2 of its parameters are not trained, such as conv.weight",
        build="net = Net(); net.conv.requires_grad_(False); return net",
    ),
    "hooks": Refused(
        LOGITS,
        "hooks change the gradients of 1 parameters, such as fc.weight",
        build="net = Net(); net.fc.weight.register_hook(lambda g: 2 * g); return net",
    ),
    "no backward": Refused(
        "y = self.conv(x).sigmoid(); y[:, 0] = 0; return self.fc(y.mean((2, 3)))",
        "fill|copy|backward pass also fails in torch",
    ),
    "jit": Refused(LOGITS, "program of torch.jit", build="return torch.jit.trace(Net(), torch.zeros(2, 3, 16, 16))"),
    "no copy": Refused(LOGITS, "it cannot be copied", build="net = Net(); nn.utils.weight_norm(net.conv); return net"),
    "lazy": Refused(
        "return self.more(self.conv(x).flatten(1))",
        "take their sizes from the first images",
        build="net = Net(); net.more = nn.LazyLinear(3); return net",
    ),
    "no module": Refused("return x", "gives a int", build="return 3"),
    "syntax error": Refused("return (x", "cannot be imported: SyntaxError"),
    "too large": Refused(
        "return self.fc(x)",
        "verifying it takes about .* GiB of memory",
        build="net = Net(); net.more = nn.Parameter(torch.zeros(1).expand(10**12)); return net",
    ),
    "no numbers": Refused("return self.conv(x).mean((2, 3))", "on the device 'meta'", build="return Net().to('meta')"),
    "raises": Refused("return x", r"build\(\) of .* fails: SystemExit: away", build="raise SystemExit('away')"),
}


def test_a_network_of_a_user_is_the_same_function(tmp_path: Path) -> None:
    """Traced by an interpreter of the user's own, whose packages the file may import; of the file nothing else runs."""
    file = tmp_path / "net.py"
    python = write_script(tmp_path / "python", f'OWN_PACKAGE=yes exec {managed.ensure("torch").python} "$@"')
    more = "def other():\n    open('other', 'w')\nif __name__ == '__main__':\n    open('main', 'w')\n"
    file.write_text("import os\nassert os.environ['OWN_PACKAGE']\n" + NET.read_text(encoding="utf-8") + more)
    before = set(tmp_path.iterdir())
    name, (model,) = resolve(f"{file}:build", 32, tracer=Tracer({"torch": str(python)}))
    assert {path for path in tmp_path.iterdir() if path.name != "__pycache__"} == before
    assert isinstance(model, ImportedModel) and model.level is not None and model.level.passed and name == model.name
    assert model().parameter_count() == 1031 and "18 parameters are removed" in model.notes[0]
    assert model.notes[1] == "it gives 2 outputs; the first is trained"


DECOMPOSED = """
steps = self.conv(x).flatten(2)
        steps = nn.functional.conv1d(steps, self.conv.weight.flatten(2)[:, [0, 1, 2, 0]], padding=4)
        steps = nn.functional.prelu(steps, self.conv.bias)
        steps = nn.functional.max_pool1d(steps, 3, 2, 1)
        first, second, *_ = nn.functional.adaptive_avg_pool1d(steps, 7).unbind(2)
        spread = steps.masked_fill(steps > 1, 1).std(2).square()
        return self.fc(torch.stack([first, second, spread]).sum(0))
"""


@pytest.mark.usefixtures("together")
def test_operators_that_torch_takes_apart_are_the_same_function(tmp_path: Path) -> None:
    model = imported(tmp_path, DECOMPOSED)
    assert {"MaxPool2d", "AdaptiveAvgPool2d", "Where", "Sqrt", "Concat"} <= {node.op for node in model().nodes}


VISION = {"build": {"Convolve", "Take", "Expand", "PadAxes", "MatMul"}, "folded": {"BatchNorm2d", "PadAxes", "Detach"}}


@pytest.mark.usefixtures("together")
def test_blocks_of_published_vision_models_are_the_same_functions() -> None:
    for name, ops in VISION.items():
        _, (model,) = resolve(f"{PLUGINS / 'vision_blocks.py'}:{name}", 16)
        assert model.level is not None and model.level.passed, model.level
        assert ops <= {node.op for node in model().nodes}


DEEP = """
from torch import nn
def build():
    layers = []
    for _ in range(40):
        conv = nn.Conv2d(8 if layers else 3, 8, 3, padding=1)
        nn.init.normal_(conv.weight, std=0.6)  # whose outputs have five times the deviation that BatchNorm starts with
        layers += [conv, nn.BatchNorm2d(8), nn.Tanh()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
"""


@pytest.mark.usefixtures("together")
def test_a_network_that_amplifies_rounding_is_verified_with_statistics_of_a_batch(tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text(DEEP)
    _, (model,) = resolve(f"{tmp_path / 'deep.py'}:build", 16)
    assert model.level is not None and model.level.passed, model.level


OWN_NORM = "net = Net(); net.norm = nn.RMSNorm(4); return net"
OWN_EPS = """
y = 1e-3 * self.conv(x).mean((2, 3))
        return self.fc(self.norm(y) + nn.functional.rms_norm(1e-3 * y, (4,)))
"""


@pytest.mark.usefixtures("together")
def test_a_norm_without_an_eps_has_that_of_float32(tmp_path: Path) -> None:
    imported(tmp_path, OWN_EPS, OWN_NORM)


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_imported_gives_one_line(kind: str, tmp_path: Path) -> None:
    body, words, build, inputs = REFUSED[kind]
    write(tmp_path, body, build, inputs)
    done = run("inspect", f"{tmp_path / 'net.py'}:build", "--image-size", 16, check=2)
    *progress, line = done.stderr.splitlines()
    assert line.startswith(f"framework-compare: {tmp_path / 'net.py'}:build: ") and re.search(words, line)
    assert not done.stdout and all("traced" in one or "environment" in one for one in progress)


@pytest.mark.usefixtures("together")
def test_constants_that_depend_on_the_size_are_those_of_each_size(tmp_path: Path) -> None:
    body = "return self.fc(self.conv(x).mean((2, 3)) * (x.shape[-1] / 10))"
    model = imported(tmp_path, body, size=[16, 24])
    for size in (16, 24):
        found = [node.attrs["values"] for node in model(image_size=size).nodes if node.op == "Constant"]
        assert found == [[size / 10]]


def test_a_file_that_never_ends_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("def build():\n    while True:\n        pass\n")
    with pytest.raises(UsageError, match=r"net.py:build: .*\b4 s"):
        resolve(f"{tmp_path / 'net.py'}:build", 16, tracer=Tracer(timeout_s=4))


IN_HAND = """
import json, sys
sys.path[1:1] = [{tests!r}]
sys.path.append({packages!r})
import torch
from user_net import build
from framework_compare.importing.imports import resolve
torch.set_num_threads(1)
module = build().eval()
before = {{name: array.clone() for name, array in module.state_dict().items()}}
_, (model,) = resolve(module, 32)
same = all(torch.equal(array, before[name]) for name, array in module.state_dict().items())
print(json.dumps([model.name, model.level.passed, model.seeded, model().parameter_count(), same, module.training]))
"""


def test_a_module_in_hand_is_read_and_stays_as_it_is() -> None:
    """In a process that has torch beside the comparison, as that of a user who imports both."""
    python = managed.ensure("torch").python
    where = "import sys, sysconfig; print(*sys.version_info[:2]); print(sysconfig.get_path('purelib'))"
    version, packages = subprocess.check_output([python, "-c", where], text=True).splitlines()
    if version != "{} {}".format(*sys.version_info[:2]):
        pytest.skip(f"torch's environment has Python {version}; run the tests with that version")
    code = IN_HAND.format(tests=str(NET.parent), packages=packages)
    answer = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    name, passed, seeded, count, same, training = json.loads(answer.stdout)
    assert name.startswith("net-") and (passed, seeded, count, same, training) == (True, False, 1031, True, False)


LARGE = """
from torch import nn
def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 24_000), nn.ReLU(), nn.Linear(24_000, 2))
"""
IMPORTED = """
import sys
from pathlib import Path
from framework_compare.importing.imports import resolve
from framework_compare.study.data_files import register_models, weight_pieces, write_models
_, (model,) = resolve(sys.argv[1] + ":build", 16)
assert model.level.passed
write_models(Path.cwd(), [model.name])
register_models(Path.cwd())
count = sum(piece.size for piece in weight_pieces(model(3), 0))
(peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(count, int(peak) // 1024)
"""


@pytest.mark.nightly
def test_a_large_model_takes_little_of_the_comparing_process(tmp_path: Path) -> None:
    """18 million parameters are 74 MB, and 148 MB in float64: neither is in its memory, nor are files mapped there."""
    managed.ensure("torch")
    (tmp_path / "large.py").write_text(LARGE)
    command = [sys.executable, "-c", IMPORTED, str(tmp_path / "large.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    count, peak_mib = map(int, done.stdout.split())
    assert count > 18e6 and peak_mib < 100


ZOO = ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5"]


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("name", some_nightly(ZOO, nightly=ZOO[:2]))
def test_models_of_torchvision_are_the_same_functions(name: str) -> None:
    _, (model,) = resolve(f"torchvision:{name}", 32)
    assert model.level is not None and model.level.passed and model.seeded


SHORTCUT = """
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.a, self.s = nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.Conv2d(i, o, 1, 2, bias=False)
    def forward(self, x):
        return torch.relu(self.a(x) + self.s(x))
def build():
    return nn.Sequential(Block(3, 16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3))
"""


@pytest.mark.nightly
def test_a_shortcut_of_few_channels_trains_where_pytorchs_kernel_crashes(tmp_path: Path) -> None:
    """PyTorch 2.13.0 with AVX2: the gradient of a strided pointwise convolution of 2 to 7 channels_last channels."""
    file = tmp_path / "net.py"
    file.write_text(SHORTCUT)
    found = run("verify", "torch", f"{file}:build", "--image-size", "64", "--batch-size", "8", "--fresh").stdout
    assert re.search(r"PyTorch +\S+ +net-\S+ +fp32 +default +0-5", found) and "SIGSEGV" not in found
