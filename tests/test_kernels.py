"""Classes of GPU kernels, by names that profilers have shown."""

import pytest

from framework_compare.results.profiles import CLASSES, NAMES, api_name, classify

SEEN = {
    "convolution": [
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1",
        "sm80_xmma_wgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_128x128_16x4_nhwc_align4>(...)",
        "_5x_cudnn_ampere_scudnn_128x32_relu_interior_nn_v1",
        "volta_scudnn_128x64_relu_interior_nn_v1",
        "void cudnn::winograd_nonfused::winogradWgradOutput4x4<float, float>(...)",
        "void cudnn::winograd::generateWinogradTilesKernel<0, float, float>(...)",
        "void cudnn::cnn::conv2d_grouped_direct_kernel<(bool)0, (bool)1, (bool)0>(...)",
        "void implicit_convolve_sgemm<float, float, (int)1024, (int)5, (int)5>(...)",
        "void wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(...)",
        "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>(...)",
        "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_kernel__5x_cudnn",
    ],
    "matrix product": [
        "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNN",
        "ampere_sgemm_128x128_nt",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>(...)",
        "void magma_sgemmEx_kernel<float, float, float, true, false>(...)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, false>(...)",
        "gemm_fusion_dot_1",
        "triton_tem_fused_addmm_12",
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float>(...)",
    ],
    "batch normalisation": [
        "void cudnn::batchnorm_fwtr_nhwc_semiPersist<__half, float, float>(...)",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(...)",
        "_ZN5cudnn21bn_bw_1C11_kernel_new",
        "void at::native::batch_norm_backward_elemt_channels_last_kernel<4, float, float, float>(...)",
        "triton_red_fused__native_batch_norm_legit_functional_3",
        "triton_red_fused__native_batch_norm_legit_functional_convolution_mul_relu_sub_6",
        "void tensorflow::functor::FusedBatchNormInferenceMetaKernel<float, float>(...)",
    ],
    "pooling": [
        "void at::native::(anonymous namespace)::max_pool_backward_nhwc<float, float>(...)",
        "void cudnn::detail::pooling_fw_4d_kernel<float, float, cudnn::detail::maxpooling_func<float>, 0, false>(...)",
        "loop_select_and_scatter_fusion",
        "triton_poi_fused_max_pool2d_with_indices_4",
    ],
    "elementwise": [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(...)>",
        "loop_add_fusion",
        "broadcast_maximum_fusion",
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
        "_ZN10tensorflow7functor15RowReduceKernelIPKfPfN3cub3SumEEEvT_T0_iiT1_",
        "triton_per_fused__log_softmax_7",
    ],
    "optimizer": [
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedSgdMathFunctor<float, 3>>",
        "void phi::MomentumDenseKernel<float>(...)",
        "void mxnet::op::mxnet_generic_kernel<mxnet::op::SGDMomKernel, float>",
    ],
    "memory copy": ["Memcpy HtoD (Pinned -> Device)", "MemcpyD2D", "[CUDA memcpy DtoH]"],
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
def test_kernel_is_of_its_class(kernel, expected):
    assert classify(kernel) == expected


def test_every_class_has_an_example():
    assert set(SEEN) == set(NAMES)
    assert all(pattern == pattern.lower() for _, pattern in CLASSES)


@pytest.mark.parametrize("name", ["cudaLaunchKernel", "cudaLaunchKernel_v7000", "cudaLaunchKernel_ptsz_v7000"])
def test_a_cuda_function_is_one_whatever_version_it_is_called_in(name):
    assert api_name(name) == "cudaLaunchKernel"
