"""A network as a user writes it: residuals, a gate, functional activations, a layer used twice, a head never used."""

import torch
import torch.nn.functional as F
from torch import nn


class Gate(nn.Module):
    """Squeeze and excitation with linear layers."""

    def __init__(self, channels):
        super().__init__()
        self.down = nn.Linear(channels, channels // 4)
        self.up = nn.Linear(channels // 4, channels)

    def forward(self, x):
        weights = x.mean((2, 3))
        weights = torch.sigmoid(self.up(F.relu(self.down(weights))))
        return x * weights[:, :, None, None]


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.gate = Gate(channels)

    def forward(self, x):
        y = self.gate(F.silu(self.norm(self.conv(x))))
        y += x
        return F.relu(y, inplace=True)


class Net(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.block = Block(8)
        self.mix = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(16, classes)
        self.other_head = nn.Linear(8, 2)

    def forward(self, x):
        x = F.max_pool2d(self.stem(x), 2)
        x = self.block(x)
        both = torch.cat([self.mix(x), self.mix(F.avg_pool2d(x, 3, 1, 1))], dim=1)
        both = F.dropout(both, 0.1, self.training)
        return self.head(both.mean(dim=(-2, -1))), self.other_head(x.mean((2, 3)))


def build():
    return Net()
