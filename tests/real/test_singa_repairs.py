"""That each repair of SINGA's wheel mends what it is for, in a process without and with the repairs."""

import json
import subprocess

import pytest

from framework_compare import registry
from framework_compare.environments import managed
from framework_compare.launch import staging

# The wheel stays as it is; that the repaired one trains what the graph is, test_singa.py and test_networks.py show by day.
pytestmark = pytest.mark.nightly
# Run by SINGA's Python: the extension is loaded, or all repairs are done; then a piece of code is tried.
SCRIPT = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from framework_compare.adapters.singa import repairs
if sys.argv[2] == "repaired":
    singa = repairs.load()
else:
    repairs._load_extension(repairs._folder() + "/" + repairs.EXTENSION)
    names = ("singa_wrap", "tensor", "autograd", "opt", "device")
    singa = repairs.Singa(*(importlib.import_module("singa." + name) for name in names))
core, autograd, tensor = singa.core, singa.autograd, singa.tensor
cpu = singa.device.get_default_device()

def full(shape, value):
    made = core.Tensor(shape, cpu, 0)
    made.SetFloatValue(value)
    return made

try:
    exec(sys.argv[3])
except Exception as error:
    answer = f"{type(error).__name__}: {error}"
print("\\nANSWER " + json.dumps(answer))  # SWIG prints, too
"""
ARRAY = """
array = np.arange(6, dtype=np.float32).reshape(2, 3)
answer = tensor.to_numpy(tensor.Tensor(data=array)).tolist()
"""
NUMBERS = """
answer = tensor.to_numpy(tensor.Tensor(data=np.arange(3, dtype=np.int32), dtype=tensor.int32)).tolist()
"""
BATCHNORM = """
x = full([2, 3, 4, 4], 5.0)
of_channels = [full([3], value) for value in (1.0, 0.0, 0.0, 1.0)]
found = core.CpuBatchNormForwardTraining(core.BatchNormHandle(0.1, x), x, *of_channels)
answer = [array.GetFloatValue(3).tolist() for array in found[1:2]] if isinstance(found, tuple) else repr(found)
"""
DIVISION = """
loss = full([1], 6.0)
loss /= 4
answer = loss.L1()
"""
DROPOUT = """
autograd.training = True
dropout = autograd.Dropout(0.75)
dropout.forward(full([8], 1.0))
answer = dropout.scale
"""
SUMS = """
autograd.training = True
def leaf(name):
    return tensor.Tensor(data=np.array([[1, 2, 3]], np.float32), requires_grad=True, stores_grad=True, name=name)
p, q = leaf("p"), leaf("q")
read, other = autograd.relu(p), autograd.relu(q)
labels = tensor.Tensor(data=np.array([0], np.int32), dtype=tensor.int32, requires_grad=False)
loss = autograd.softmax_cross_entropy(autograd.add(autograd.add(read, other), read), labels)
found = {of.name: tensor.to_numpy(gradient)[0, 2] for of, gradient in autograd.backward(loss)}
answer = round(float(found["p"] / found["q"]), 4)
"""
# Code, what it does with the wheel as it is, and repaired.
FAULTS = {
    "arrays": (ARRAY, "CopyFloatDataFromHostPtr() missing 1 required", [[0, 1, 2], [3, 4, 5]]),
    "numbers": (NUMBERS, "Error: ", [0, 1, 2]),
    "vectors": (BATCHNORM, "std::vector< singa::Tensor", [[5, 5, 5]]),
    "division": (DIVISION, "TypeError: unsupported operand type(s) for /=", 1.5),
    "dropout": (DROPOUT, 0.25, 4.0),
}


@pytest.fixture(scope="module")
def singa():
    """Runs code in a process of SINGA's environment, with the repairs or without."""
    source, python = staging.stage(registry.framework("singa")), managed.ensure("singa").python

    def run(how: str, code: str):
        command = [str(python), "-c", SCRIPT, str(source), how, code]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.partition("ANSWER ")[2].splitlines()[0])

    return run


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_shows_and_its_repair_mends_it(singa, fault):
    code, before, after = FAULTS[fault]
    found = singa("as it is", code)
    assert before in found if isinstance(before, str) else found == before
    assert singa("repaired", code) == after


# Arrays are needed, which the wheel takes only where they are repaired.
AS_IT_IS = "core.Tensor.__iadd__ = lambda self, other: core._singa_wrap.Tensor___iadd__(self, other)"


def test_gradients_of_sums_are_added_into_each_other_unless_repaired(singa):
    assert singa("repaired", AS_IT_IS + SUMS) == 1.0
    assert singa("repaired", SUMS) == 2.0
