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


def ready(outputs, target):
    """The losses that torch has for numbers."""
    kinds = (F.mse_loss, F.l1_loss, F.huber_loss, F.smooth_l1_loss)
    parts = [kind(outputs, target, reduction="none").mean(1) for kind in kinds]
    return torch.stack([*parts, torch.log(torch.cosh(outputs - target)).mean(1)]).sum(0)


def shares(outputs, target):
    """The divergence of two distributions that are nearly equal."""
    first, second = (torch.cat([0.1 * one, -one, one.sin()], 1) for one in (outputs, outputs + 0.1 * target))
    return F.kl_div(first.log_softmax(1), second.softmax(1), reduction="none").sum(1)


def of_the_batch(outputs, target):
    return F.mse_loss(outputs, target)


class Queries(nn.Module):
    """Learnt queries for each sample attend to its steps, twice."""

    def __init__(self):
        super().__init__()
        self.queries = nn.Parameter(torch.randn(4, 8) * 0.02)
        self.step = nn.Linear(2, 8)
        self.cross, self.own = (nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        x = self.step(x)
        queries = self.queries.unsqueeze(0).expand(x.size(0), -1, -1)
        queries = queries + self.cross(queries, x, x, need_weights=False)[0]
        return self.out((queries + self.own(queries, queries, queries, need_weights=False)[0]).mean(1))


class Bags(nn.Module):
    """Sums of rows of a table, and logarithms and roots of counts."""

    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(50, 6, mode="mean")
        self.out = nn.Linear(11, 3)

    def forward(self, tokens, counts):
        return self.out(torch.cat([self.table(tokens), torch.log1p(counts) + counts.sqrt()], 1))


class Padded(nn.Module):
    """An encoder whose attention leaves out padding."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 8, padding_idx=0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(8, 3)

    def forward(self, tokens):
        padding = tokens == 0
        return self.out(self.encoder(self.table(tokens), src_key_padding_mask=padding).mean(1))


class Tied(nn.Module):
    """A language model without attention, whose logits lie hundreds apart."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 256)
        self.mix, self.norm = nn.Linear(256, 256), nn.LayerNorm(256)

    def forward(self, tokens):
        x = self.words(tokens)
        return F.linear(self.norm(x + torch.tanh(self.mix(x))), self.words.weight)


class Writes(nn.Module):
    """Parts of values are written over, as forward functions often do."""

    def __init__(self):
        super().__init__()
        self.step = nn.Linear(2, 4)
        self.shift = nn.Parameter(torch.randn(10))
        self.out = nn.Linear(40, 1)

    def forward(self, x):
        y = self.step(x)
        shift = self.shift.clone()
        shift[2:4].zero_()
        y = y + shift[None, :, None]
        late = torch.zeros_like(y)
        late[:, 1:] = y[:, :-1]
        late[:, 0] = 0.5
        y = y * 1.0
        y[:, 2, 1:3] = y[:, 3, 1:3] * 2
        return self.out((y + late).flatten(1))


class Windows(nn.Module):
    """Overlapping windows of a series."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(8, 6), nn.Linear(24, 4)

    def forward(self, x):
        return self.head(torch.tanh(self.embed(x.unfold(1, 4, 2).flatten(2))).flatten(1))


def by_label(outputs, target):
    """Cross-entropy with weights of labels, whose mean is theirs, and a part of its own."""
    weight = torch.tensor([0.2, 1.0, 3.0, 0.7])
    label = target.long()
    chosen = outputs.gather(1, label.unsqueeze(1)).squeeze(1)
    loss = F.cross_entropy(outputs, label, weight=weight, reduction="none")
    return loss / weight.sum() + weight[label] * torch.sigmoid(-chosen)


def twice(outputs, target):
    """From several places of an axis at once."""
    places = torch.stack([target.long(), 3 - target.long()], 1)
    first, second = outputs.gather(1, places).unbind(1)
    return (first - 2 * second) ** 2


def away(outputs, target):
    """A target minus outputs: a sum of what has no gradient with what has one."""
    return (target - outputs).abs().mean(1)
