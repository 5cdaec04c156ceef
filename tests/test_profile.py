"""Profiles: a few steps under the framework's own profiler after the epochs, and what is shown of them."""

import json
import shutil

import pytest
from stored_study import recorded, selected

from framework_compare import compare, records, resume
from framework_compare.adapters.common.profile import xplane_rows
from framework_compare.errors import ProtocolError
from framework_compare.launch.transcript import Transcript
from framework_compare.protocol import ProfileRow, TrainConfig
from framework_compare.records import Cell, Run
from framework_compare.report import terminal
from framework_compare.report.tables import NOTHING, Group, Row, Table, Value
from framework_compare.results.profiles import CLASSES, NAMES, api_name, classify
from framework_compare.worker import profiling
from framework_compare.worker.profiling import MAX_NAME, Line, Span, bound, count, self_times, write_trace

SMALL = dict(image_size=32, batch_size=4, epochs=2, warmup_steps=0, verify="off")


@pytest.fixture(scope="module")
def profiled(train_once):
    return train_once(profile=True, **SMALL)


def test_profiled_steps_are_counted_after_the_epochs_and_the_trace_is_named_in_the_record(profiled):
    assert list(profiled.frame.status) == ["ok"], profiled.frame.reason[0]
    phases = profiled.phases.set_index("phase")
    assert phases.start_s["profile"] >= phases.start_s["epochs"] + phases.seconds["epochs"]
    rows = profiled.profile
    assert list(rows.name) == ["logits", "update", "rest"]
    assert list(rows.calls) == [3, 3, 3]
    assert list(rows.share) == pytest.approx([0.75, 0.2475, 0.0025])
    trace = profiled.folder / profiled.frame.trace_path[0]
    assert json.loads(trace.read_text()) == {"traceEvents": []}


def test_without_profile_there_is_none(trained):
    assert trained.profile.empty and trained.frame.trace_path[0] is None
    assert "profile" not in set(trained.phases.phase)
    assert str(trained.table("profile")).startswith("No cell of this study was profiled")


def test_a_resumed_study_profiles_what_it_still_runs(tiny, own_cache, tmp_path, profiled):
    again = resume(shutil.copytree(profiled.folder, tmp_path / "study"), retry=["ok"])
    assert list(again.profile.name) == ["logits", "update", "rest"]


def test_tables_have_shares_and_what_is_below_a_percent_and_csv_every_row(profiled):
    text = profiled.table("profile", "markdown")
    assert "| logits | 75.0 |" in text and "| update | 24.8 |" in text
    assert "| below 1 % everywhere | 0.2 |" in text
    assert "rest" not in text
    header, *lines = profiled.table("profile", "csv").splitlines()
    assert header.endswith("kind,name,kernel_class,calls,self_s,share")
    assert len(lines) == 3


@pytest.fixture
def two_kinds(tmp_path):
    """One network on two frameworks that have kernels, and a third that failed."""
    cells = [Cell(name, "alexnet", "small", "cuda", TrainConfig(device="cuda")) for name in ("torch", "jax", "mxnet")]
    rows = [
        [("kernel", "nvjet_tst_128x64", 0.6), ("kernel", "ampere_sgemm_32x32", 0.3), ("kernel", "unknown", 0.1)],
        [("kernel", "loop_add_fusion", 0.995), ("kernel", "MemcpyD2D", 0.005), ("cuda-runtime", "cudaFree_v3", 1.0)],
    ]
    profiles = (tuple(records.ProfileRow(kind, name, 3, self_s) for kind, name, self_s in found) for found in rows)
    runs = [*(Run("ok", profile=profile) for profile in profiles), Run("failed", reason="no build for this GPU")]
    return recorded(tmp_path / "study", cells, runs)


def test_kernels_are_shown_by_class_with_those_that_failed(two_kinds):
    runtime, kernels = two_kinds.table("profile", "markdown").split("GPU time by class")
    assert "| cudaFree | - | 100.0 | failed (1) |" in runtime
    lines = kernels.splitlines()
    assert "| elementwise | - | 99.5 | failed (1) |" in lines
    assert "| matrix product | 90.0 | - | - |" in lines
    assert "| other | 10.0 | - | - |" in lines
    assert "| below 1 % everywhere | 0.0 | 0.5 | - |" in lines
    assert any("no build for this GPU" in line for line in lines)
    sums = two_kinds.profile.groupby(["framework", "kind"]).share.sum()
    assert list(sums) == pytest.approx([1.0, 1.0, 1.0])


@pytest.mark.parametrize("fault, why", [
    ("profile-raise", "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
    *(("profile-segfault", "SIGSEGV"), ("profile-hang", "timed-out"), ("profile-malformed", "not a count")),
    *(("profile-unknown-kind", "kind"), ("profile-endless", "301 rows")),
])  # fmt: skip
def test_a_profiler_that_fails_leaves_the_cell_as_it_was(faulty, images, tmp_path, fault, why):
    limits = {"phase_timeout_s": {"profile": 2.0}}
    study = compare(faulty, fault, dataset=images, out=tmp_path / "study", profile=True, **limits, **SMALL)
    assert list(study.frame.status) == ["ok"], study.frame.reason[0]
    assert list(study.epochs.epoch) == [1, 2]
    assert why in selected(study.folder, "SELECT warnings FROM run")[0][0]


def test_hostile_names_are_kept_short_and_printable(faulty, images, tmp_path):
    study = compare(faulty, "profile-hostile", dataset=images, out=tmp_path / "study", profile=True, **SMALL)
    name = study.profile.name[0]
    assert len(name) <= MAX_NAME and name.encode("utf-8")
    for style in ("terminal", "markdown", "latex", "csv"):
        assert "\x1b[31m" not in study.table("profile", style)


def test_self_times_add_up_and_rows_are_counted_line_by_line_the_largest_kept():
    inner = [Span("inner", 10, 60), Span("leaf", 20, 30), Span("inner", 60, 90)]
    spans = [Span("next", 100, 130), *inner, Span("outer", 0, 100)]
    assert self_times(spans) == [("outer", 20), ("inner", 40), ("leaf", 10), ("inner", 30), ("next", 30)]
    lines = [Line("operator", "a", [Span("x", 0, 10)]), Line("kernel", "b", [Span("x", 0, 7), Span("y", 2, 3)])]
    expected = ("operator", "x", 1, 10), ("kernel", "x", 1, 6), ("kernel", "y", 1, 1)
    assert count(lines) == [ProfileRow(*row) for row in expected]
    rows = [ProfileRow("kernel", f"k{n}", 1, n) for n in range(150)]
    kept = bound([*rows, ProfileRow("kernel", "k149", 2, 1), ProfileRow("operator", "x" * 999, 1, 5)])
    assert len(kept) == 101
    assert kept[0] == ("kernel", "k149", 3, 150)
    assert kept[99].name == "other" and sum(row.self_ns for row in kept[:100]) == sum(range(150)) + 1
    assert kept[100] == ("operator", "x" * MAX_NAME, 1, 5)


def test_a_trace_of_lines_is_in_chromes_format(tmp_path):
    import gzip

    write_trace([Line("kernel", "stream 7", [Span("k", 2000, 5000)])], str(tmp_path))
    with gzip.open(tmp_path / "trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    assert events[1] == {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 0, "ts": 2.0, "dur": 3.0}


MALFORMED = [None, [["operator"]], [["operator", "x", "1", 1]], [["operator", "x", 1, 1 << 63]], ["abcd"]]


@pytest.mark.parametrize("rows", MALFORMED)
def test_malformed_rows_are_refused(rows):
    with pytest.raises(ProtocolError, match="malformed profile event"):
        Transcript(0, 1).add({"event": "profile", "t_ns": 1, "steps": 3, "rows": rows})


@pytest.mark.parametrize("plane, line, event, kind", [
    ("/device:GPU:0", "Stream #14(Compute)", "loop_add_fusion", "kernel"),
    ("/device:GPU:0", "XLA Ops", "loop_add_fusion", ""),
    ("/host:CUPTI", "17", "cuLaunchKernel", "cuda-runtime"),
    ("/host:CPU", "python3", "cuGraphLaunch (CudaGraph:4)", "cuda-runtime"),
    ("/host:CPU", "python3", "cudaEventSynchronize", "cuda-runtime"),
    ("/host:CPU", "python3", "cublas-gemm-rewriter", "operator"),
    ("/host:CPU", "tf_XLAEigen", "dot.3", "operator"),
    ("Task Environment", "", "anything", ""),
])  # fmt: skip
def test_events_of_xlas_profiler_are_told_apart(plane, line, event, kind):
    assert profiling.xplane_kind(plane, line, event) == kind


def test_a_call_that_is_named_after_its_kernel_is_one_of_cuda(tmp_path):
    """TensorFlow 2.21: the host's lines have the names of kernels beside those of operators."""
    (tmp_path / "a.xplane.pb").touch()

    def event(name, start_ns, end_ns):
        return name, lambda kind: name, start_ns, end_ns

    def read(path):
        yield "/device:GPU:0", "Stream #13(Compute)", [event("sm90_gemm", 20, 90), event("Memset 3", 5, 6)]
        yield "/host:CPU", "tf_Compute/1", [event("MatMul", 0, 9), event("sm90_gemm", 3, 5), event("Memset 3", 7, 8)]

    assert sorted(xplane_rows(str(tmp_path), read)) == [
        ("cuda-runtime", "Launch of a kernel", 1, 2), ("cuda-runtime", "Memory operation", 1, 1),
        ("kernel", "Memset 3", 1, 1), ("kernel", "sm90_gemm", 1, 70), ("operator", "MatMul", 1, 9),
    ]  # fmt: skip


def test_a_line_of_the_host_is_parted_by_kind():
    events = [
        ("operator", "dot", 0, 9),
        ("cuda-runtime", "cuGraphLaunch", 2, 4),
        ("", "x", 0, 1),
        ("operator", "", 0, 1),
    ]
    found = {line.kind: line for line in profiling.lines_by_kind("/host:CPU python3", events)}
    assert found["operator"].spans == [profiling.Span("dot", 0, 9)]
    assert found["cuda-runtime"].spans == [profiling.Span("cuGraphLaunch", 2, 4)]
    called = ("cudaLaunchKernel", "cudaLaunchKernel_v7000", "cudaLaunchKernel_ptsz_v7000")
    assert {api_name(name) for name in called} == {"cudaLaunchKernel"}, "whatever version it is called in"
    assert profiling.cuda_function("cuGraphLaunch (CudaGraph:4)") == "cuGraphLaunch"
    assert profiling.cuda_function("cublas-gemm-rewriter") == profiling.cuda_function("cudnn_convolution") == ""


def test_a_stack_of_columns_leaves_out_names_it_has_no_figure_for():
    rows = (Row(("shared",), (Value("1"), Value("2"))), Row(("of the first",), (Value("3"), Value(NOTHING))))
    table = Table("shares", ("operator",), (Group("net", ("a" * 20, "b" * 20)),), rows, sparse=True)
    first, second = terminal.render(table, width=40, bold=False).split("b" * 20)
    assert "of the first" in first and "of the first" not in second and "shared" in second
    both = terminal.render(table, width=80, bold=False)
    assert both.count("of the first") == 1


SEEN = {
    "convolution": [
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_128x128_16x4_nhwc_align4>(...)",
        "_5x_cudnn_ampere_scudnn_128x32_relu_interior_nn_v1",
        "void cudnn::winograd_nonfused::winogradWgradOutput4x4<float, float>(...)",
        "void implicit_convolve_sgemm<float, float, (int)1024, (int)5, (int)5>(...)",
        "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>(...)",
        "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_kernel__5x_cudnn",
    ],
    "matrix product": [
        "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNN",
        "ampere_sgemm_128x128_nt",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, false>(...)",
        "gemm_fusion_dot_1",
        "triton_tem_fused_addmm_12",
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float>(...)",
    ],
    "batch normalisation": [
        "void cudnn::batchnorm_fwtr_nhwc_semiPersist<__half, float, float>(...)",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(...)",
        "triton_red_fused__native_batch_norm_legit_functional_convolution_mul_relu_sub_6",
    ],
    "pooling": [
        "loop_select_and_scatter_fusion",
        "triton_poi_fused_max_pool2d_with_indices_4",
    ],
    "elementwise": [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(...)>",
        "loop_add_fusion",
        "wrapped_convert",
        "triton_poi_fused_convolution_9",
        "void tensorflow::BiasNCHWKernel<float>(int, float const*, float const*, float*, int, int)",
        "_ZN5Eigen8internal15EigenMetaKernelINS_15TensorEvaluatorIKNS_14TensorAssignOp",
    ],
    "reduction": [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float>>>(...)",
        "input_reduce_fusion_92",
        "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 11, false, false>(...)",
        "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(...)",
        "triton_per_fused__log_softmax_7",
    ],
    "optimizer": [
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedSgdMathFunctor<float, 3>>",
        "void phi::MomentumDenseKernel<float>(...)",
        "void mxnet::op::mxnet_generic_kernel<mxnet::op::SGDMomKernel, float>",
    ],
    "memory copy": ["Memcpy HtoD (Pinned -> Device)", "[CUDA memcpy DtoH]"],
    "memory set": ["Memset (Device)", "[CUDA memset]"],
    "layout change": [
        "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true>(...)",
        "void cudnn::ops::nhwcToNchwKernel<__half, __half, float, true, false>(...)",
        "void tensorflow::functor::SwapDimension1And2InTensor3UsingTiles<unsigned int, 1024, 1024, 2, false>(...)",
        "input_transpose_fusion",
    ],
    "random": [
        "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>(...)",
        "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>(...)",
        "loop_threefry2x32_fusion",
    ],
    "other": ["some_kernel_nobody_knows"],
}  # fmt: skip


@pytest.mark.parametrize("kernel, expected", [(name, kind) for kind, names in SEEN.items() for name in names])
def test_kernel_is_of_its_class_each_of_which_has_an_example(kernel, expected):
    assert classify(kernel) == expected
    assert set(SEEN) == set(NAMES)
    assert all(pattern == pattern.lower() for _, pattern in CLASSES)
