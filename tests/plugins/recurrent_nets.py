"""Recurrent models of series (20, 3) that are no fused layer of the graph, and others whose words or outputs are odd."""

import torch
from torch import nn


class Recurrent(nn.Module):
    def __init__(self, kind=nn.LSTM, width=8, **options):
        super().__init__()
        self.r = kind(3, 8, **{**({} if kind is nn.LSTMCell else {"batch_first": True}), **options})
        self.o = nn.Linear(width, 1)

    def forward(self, x):
        return self.o(self.r(x)[0].mean(1))


def no_biases():
    return Recurrent(nn.GRU, 16, num_layers=2, bias=False, bidirectional=True)


def plain():
    return Recurrent(nn.RNN)


def projected():
    return Recurrent(width=4, proj_size=4)


class CellState(Recurrent):
    def forward(self, x):
        return self.o(self.r(x)[1][1][-1])


class LearntState(Recurrent):
    """Its steps are the first axis."""

    def __init__(self):
        super().__init__(nn.GRU, batch_first=False)
        self.start = nn.Parameter(torch.randn(1, 1, 8))

    def forward(self, x):
        _, last = self.r(x.transpose(0, 1), self.start.expand(1, x.shape[0], 8).contiguous())
        return self.o(last[0])[:, 0]


class Cell(Recurrent):
    def __init__(self):
        super().__init__(nn.LSTMCell)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 8)
        c = torch.zeros_like(h)
        for step in range(x.shape[1]):
            h, c = self.r(x[:, step], (h, c))
        return self.o(h)


class Decoder(Recurrent):
    def __init__(self):
        super().__init__()
        self.decoder = nn.LSTM(3, 8, batch_first=True)

    def forward(self, x):
        _, state = self.r(x[:, :10])
        return self.o(self.decoder(x[:, 10:], state)[0][:, -1])


class Gate(nn.Module):
    """A gate without a gradient, and an output without its axes."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 4)
        self.o = nn.Linear(4, 1)

    def forward(self, x):
        with torch.no_grad():
            gate = torch.sigmoid(self.a(x))
        return self.o(self.a(x) * gate)[:, 0, 0]


class Branch(Gate):
    def forward(self, x):
        y = self.a(x)
        if y.sum() > 0:
            y = 2 * y
        return self.o(y.mean(1))


class Chosen(Gate):
    def forward(self, x):
        return self.o(self.a(x).mean(1)) + x[x > 0].mean()


class Pixels(nn.Module):
    """Classes of each pixel of an image (3, 8, 8)."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.out = nn.Conv2d(6, 4, 1)

    def forward(self, image):
        return self.out(nn.functional.interpolate(torch.relu(self.down(image)), scale_factor=2.0, mode="bilinear"))


def by_pixel(outputs, target):
    return nn.functional.cross_entropy(outputs, target, reduction="none").mean((1, 2))


class Few(nn.Module):
    """A table with a row too few."""

    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(40, 4, sparse=True)
        self.o = nn.Linear(4, 1)

    def forward(self, user):
        return self.o(self.e(user))
