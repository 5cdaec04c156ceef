"""A network of one's own: residual blocks whose channels are weighted by what they hold (squeeze and excitation).

framework-compare run torch,jax examples/own_net.py:build IMAGES --image-size 64
"""

import torch
from torch import nn


class Block(nn.Module):
    """Two convolutions beside a shortcut; the sum has half the size of the input and `after` channels."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.shortcut = nn.Conv2d(before, after, 1, stride=2)
        self.weigh = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(after, after // 4, 1),
            nn.ReLU(),
            nn.Conv2d(after // 4, after, 1),
            nn.Sigmoid(),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found = self.body(images)
        return torch.relu(found * self.weigh(found) + self.shortcut(images))


def build() -> nn.Module:
    return nn.Sequential(
        Block(3, 16), Block(16, 32), Block(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 3)
    )
