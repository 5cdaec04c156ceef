"""Blocks of published vision models: standardized weights, resized positions, halos, relative and rotated positions."""

import torch
from torch import nn
from torch.nn import functional as F

HEADS, WIDTH, SIDE, HALO = 2, 4, 4, 6


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, HEADS * WIDTH, 3)
        self.gain = nn.Parameter(torch.ones(HEADS * WIDTH))
        self.positions = nn.Parameter(torch.randn(1, HEADS * WIDTH, 5, 5))
        self.relative = nn.Parameter(torch.randn(2 * SIDE - 1, WIDTH))
        self.qkv = nn.Linear(HEADS * WIDTH, 3 * HEADS * WIDTH)
        self.register_buffer("turn", torch.rand(SIDE * SIDE - 1, WIDTH))
        self.fc = nn.Linear(HEADS * WIDTH, 3)

    def standardized(self, x):
        flat = self.conv.weight.reshape(1, HEADS * WIDTH, -1)
        weight = F.batch_norm(flat, None, None, weight=0.1 * self.gain, training=True, momentum=0.0, eps=1e-6)
        return F.conv2d(x, weight.reshape_as(self.conv.weight), self.conv.bias, padding=1)

    def along_rows(self, q):
        """Return the scores of each query with each place of its row, for every row."""
        batch, height, width, _ = q.shape
        x = (q @ self.relative.transpose(-1, -2)).reshape(-1, width, 2 * width - 1)
        x = F.pad(F.pad(x, [0, 1]).flatten(1), [0, width - 1])
        x = x.reshape(-1, width + 1, 2 * width - 1)[:, :width, width - 1 :]
        return x.reshape(batch, height, 1, width, width).expand(-1, -1, height, -1, -1).permute(0, 1, 3, 2, 4)

    def attend(self, x):
        count, steps, _ = x.shape
        q, k, v = self.qkv(x).reshape(count, steps, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4).unbind(0)
        swapped = torch.stack([-q[..., 1::2], q[..., ::2]], -1).reshape(q.shape)
        q = torch.cat([q[:, :, :1], q[:, :, 1:] * self.turn + swapped[:, :, 1:] * (1 - self.turn)], 2)
        q, k, v = (one.reshape(count * HEADS, steps, WIDTH) for one in (q, k, v))
        places = self.along_rows(q.reshape(count * HEADS, SIDE, SIDE, WIDTH)).reshape(count * HEADS, steps, steps)
        y = (q @ k.transpose(-1, -2) + places).softmax(-1) @ v
        return y.reshape(count, HEADS, steps, WIDTH).transpose(1, 2).reshape(count, steps, HEADS * WIDTH)

    def forward(self, x):
        x = self.standardized(x)
        x = x + F.interpolate(self.positions, size=x.shape[2:], mode="bicubic", antialias=True)
        windows = F.pad(x, [1, 1, 1, 1]).unfold(2, HALO, SIDE).unfold(3, HALO, SIDE)  # N, C, 4, 4, halo, halo
        x = windows.amax((-1, -2)).flatten(2).transpose(1, 2)
        return self.fc(self.attend(x).mean(1))


class Folded(nn.Module):
    """Steps and windows as samples of layers, windows that overlap, positions made for each image, no autocast."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, WIDTH, 3), nn.BatchNorm1d(WIDTH)
        self.place, self.fc = nn.Linear(2, WIDTH), nn.Linear(WIDTH, 3)
        self.spread = nn.Linear(WIDTH, WIDTH * 9)
        self.inner = nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=2), nn.BatchNorm2d(WIDTH))

    def forward(self, x):
        count, side = len(x), x.shape[-1] - 2
        x = self.conv(x).flatten(2).transpose(1, 2)
        x = self.bn(x.flatten(0, 1)).reshape_as(x)
        rows = torch.arange(side, dtype=x.dtype)
        places = torch.stack(torch.meshgrid(rows, rows, indexing="ij"), -1).flatten(0, 1).expand(count, -1, -1)
        x = torch.cat([x[:, :0], x + self.place(places)], 1)
        with torch.autocast("cpu", enabled=False):
            x = x.transpose(1, 2).unflatten(2, (side, side))
            windows = self.spread(F.avg_pool2d(x, 2, 2).flatten(2).transpose(1, 2)).transpose(1, 2)
        with torch.no_grad():
            scale = x.mean((2, 3), keepdim=True)
        x = x * scale + F.fold(windows, (side, side), 3, padding=1, stride=2)
        windows = x.reshape(count, WIDTH, 2, side // 2, 2, side // 2).permute(0, 2, 4, 1, 3, 5)
        x = self.inner(windows.reshape(count * 4, WIDTH, side // 2, side // 2)).reshape(windows.shape)
        return self.fc(x.square().mean((1, 2, 4, 5)))


def build():
    return Net()


def folded():
    return Folded()
