"""Models of arrays as users write them: series, a row beside an image, tokens; and losses of their own."""

import torch
import torch.nn.functional as F
from torch import nn


class Series(nn.Module):
    """Windows of 10 steps of 2 numbers, one number out, without its axis."""

    def __init__(self):
        super().__init__()
        self.step = nn.Linear(2, 6)
        self.norm = nn.LayerNorm(6)
        self.out = nn.Linear(60, 1)

    def forward(self, x):
        return self.out(F.gelu(self.norm(self.step(x))).flatten(1)).squeeze(-1)


class Two(nn.Module):
    """Named inputs in another order than the data's, and two outputs by name."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.row = nn.Linear(5, 4)
        self.out = nn.Linear(8, 3)

    def forward(self, image, row):
        seen = F.relu(self.conv(image)).mean((2, 3))
        both = torch.cat([seen, torch.tanh(self.row(row))], 1)
        return {"hidden": both, "label": self.out(both)}


def yes_or_no():
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))


def weighted(outputs, target):
    """Squared error that counts more where the output is above."""
    off = outputs - target
    return (off * off * torch.sigmoid(off)).mean(1)


def of_the_batch(outputs, target):
    return F.mse_loss(outputs, target)
