"""What we say of the machine, against other ways to know it, and of control groups, on folders laid out as theirs."""

import json
import os
import platform
import subprocess
import sys

import psutil
import pytest

from framework_compare.samplers import host


def test_the_description_agrees_with_psutil_and_is_json_that_names_nobody():
    text = json.dumps(host.describe(), allow_nan=False)
    words = json.dumps(list(host.describe().values()))
    assert json.loads(text)["cpu"]
    node = platform.node()
    assert len(node) < 4 or node not in words, "the host's name is in the description"
    assert os.path.expanduser("~") + os.sep not in words
    described = host.describe()
    assert described["memory_bytes"] == psutil.virtual_memory().total
    assert described["physical_cores"] == psutil.cpu_count(logical=False)
    assert described["logical_cores"] >= described["affinity_cores"] >= described["available_cores"] >= 1
    assert described["python"].endswith(platform.python_version())


# Affinity, logical and physical cores, quota; which are available.
CORES = {
    **{
        "plain": (8, 8, 8, None, 8),
        "hyper-threads": (16, 16, 8, None, 8),
        "physical-unknown": (16, 16, None, None, 16),
    },
    **{"pinned": (6, 16, 8, None, 6), "pinned-to-hyper-threads": (12, 16, 8, None, 12)},
    **{"quota": (16, 16, 8, 2.5, 2), "quota-beyond": (16, 16, 8, 100.0, 8), "quota-below-one": (16, 16, 8, 0.2, 1)},
}


@pytest.mark.parametrize("affinity, logical, physical, quota, available", CORES.values(), ids=CORES)
def test_available_cores(monkeypatch, affinity, logical, physical, quota, available):
    monkeypatch.setattr(host, "_affinity_cores", lambda: affinity)
    monkeypatch.setattr(host.os, "cpu_count", lambda: logical)
    monkeypatch.setattr(host.psutil, "cpu_count", lambda logical: physical)
    monkeypatch.setattr(host, "quota_cores", lambda: quota)
    assert host.available_cores() == available


def test_available_cores_of_a_process_pinned_to_one():
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from framework_compare.samplers.host import available_cores; print(available_cores())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"


def write(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")


V1 = "4:memory:/docker/ab\n2:cpu,cpuacct:/docker/ab\n1:cpuset:/"


QUOTA, PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"
FILE_PAGES = "inactive_file 0\ntotal_active_file 0\ntotal_inactive_file 90"
A = {"a/memory.max": "1000", "a/memory.current": "700", "a/memory.stat": "active_file 40\ninactive_file 60"}
V1_A = {"limit_in_bytes": "1000", "usage_in_bytes": "1000", "stat": FILE_PAGES}
# Membership, files of the mount, and what is read from them.
GROUPS = {
    host.quota_cores: {
        "v2-root": ("0::/", {}, None),
        "v2-in-container": ("0::/", {"cpu.max": "150000 100000"}, 1.5),
        "v2-of-parent": ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "400000 100000"}, 4.0),
        "v2-smallest": ("0::/a/b", {"a/b/cpu.max": "50000 100000", "a/cpu.max": "400000 100000"}, 0.5),
        "v2-no-limit": ("0::/a", {"a/cpu.max": "max 100000"}, None),
        "v2-group-outside-its-namespace": ("0::/../up", {"cpu.max": "200000 100000"}, 2.0),
        "v1-no-limit": (V1, {f"cpu/{QUOTA}": "-1", f"cpu/{PERIOD}": "100000"}, None),
        "v1-inside": (V1, {f"cpu/{QUOTA}": "300000", f"cpu/{PERIOD}": "100000"}, 3.0),
        "v1-of-the-host": (V1, {f"cpu/docker/ab/{QUOTA}": "250000", f"cpu/docker/ab/{PERIOD}": "100000"}, 2.5),
    },
    host.memory_limit_bytes: {
        "v2": ("0::/a", {"a/memory.max": "1073741824"}, 1 << 30),
        "v2-no-limit": ("0::/a", {"a/memory.max": "max"}, None),
        "v2-of-the-parent": ("0::/a", {"a/memory.max": "max", "memory.max": "2147483648"}, 2 << 30),
        "v1": (V1, {"memory/memory.limit_in_bytes": "536870912"}, 512 << 20),
        "v1-no-limit": (V1, {"memory/memory.limit_in_bytes": "9223372036854771712"}, None),
    },
    host.memory_left_bytes: {
        "v2": ("0::/a/b\n", {**A, "a/b/memory.max": "max", "a/b/memory.current": "300"}, 400),
        "v1": ("4:memory:/a\n", {f"memory/a/memory.{name}": text for name, text in V1_A.items()}, 90),
        "none": ("0::/a\n", {"a/memory.max": "1000", "a/memory.current": "1200"}, 0),
        "no-limit": ("0::/a\n", {"a/memory.max": "max", "a/memory.current": "1200"}, None),
    },
}


@pytest.mark.parametrize("read, case", [(read, case) for read, cases in GROUPS.items() for case in cases])
def test_limits_of_control_groups(tmp_path, read, case):
    membership, files, expected = GROUPS[read][case]
    write(tmp_path, {"membership": membership, **{f"mount/{path}": text for path, text in files.items()}})
    assert read(mount=tmp_path / "mount", membership=tmp_path / "membership") == expected
    assert read(mount=tmp_path, membership=tmp_path / "missing") is None, "no groups at all"


@pytest.mark.parametrize(
    "flags, said",
    [
        ("fpu avx avx2 fma", "AMD EPYC (AVX2)"),
        ("fpu avx avx2 avx512f avx512_bf16", "AMD EPYC (AVX-512)"),
        ("fpu avx2 avx512f amx_tile", "AMD EPYC (AMX)"),
        ("fpu", "AMD EPYC"),
    ],
)
def test_processors_of_one_name_are_told_apart_by_their_vectors(tmp_path, flags, said):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: {flags}\n\nprocessor\t: 1\n")
    assert host.cpu_model(str(cpuinfo)) == said
    assert host.cpu_model(str(tmp_path / "gone")), "of one without a name its architecture"
