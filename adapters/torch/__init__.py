"""PyTorch: the graph becomes a torch.fx module of torch.nn layers, so eager runs straight-line code.

On a CPU `recommended` is channels_last with an allocator that keeps freed memory: the fastest fp32 mode of all
four networks, ahead of torch.compile. On a GPU it is channels_last, cuDNN's choice of algorithm and the fused
optimizer; `graph` captures the whole step as a CUDA graph, `compiled` does so with torch.compile's kernels. The
native pipeline is torchvision's ImageNet recipe in a DataLoader.
"""

from framework_compare.adapters.torch.trainer import TorchTrainer as TorchTrainer
