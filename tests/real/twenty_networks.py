"""Twenty networks as users write them, drawn before it was asked which can be imported; an issue asked for the first seven.

NETWORKS names each class with the shape of one sample, its dtype, and its number of different tokens (0: numbers).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn


class MlpMixer(nn.Module):
    def __init__(self, width=32, patch=8, size=32, classes=10):
        super().__init__()
        places = (size // patch) ** 2
        self.stem = nn.Conv2d(3, width, patch, stride=patch)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.tokens = nn.ModuleList(self._mlp(places, 24) for _ in range(2))
        self.channels = nn.ModuleList(self._mlp(width, 64) for _ in range(2))
        self.head = nn.Linear(width, classes)

    def _mlp(self, width, hidden):
        return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        for i in range(2):
            x = x + self.tokens[i](self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + self.channels[i](self.norms[2 * i + 1](x))
        return self.head(x.mean(dim=1))


class ConvMixer(nn.Module):
    def __init__(self, width=24, depth=2, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 4, stride=4), nn.GELU(), nn.BatchNorm2d(width))
        self.spatial = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 5, groups=width, padding="same"), nn.GELU(), nn.BatchNorm2d(width))
            for _ in range(depth)
        )
        self.pointwise = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 1), nn.GELU(), nn.BatchNorm2d(width)) for _ in range(depth)
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for spatial, pointwise in zip(self.spatial, self.pointwise):
            x = pointwise(x + spatial(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class GroupNormResidual(nn.Module):
    def __init__(self, width=16, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.blocks = nn.ModuleList(
            nn.ModuleList([nn.GroupNorm(4, width), nn.Conv2d(width, width, 3, padding=1)]) for _ in range(3)
        )
        self.norm = nn.GroupNorm(1, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for norm, conv in self.blocks:
            x = x + conv(F.leaky_relu(norm(x), 0.1))
        x = F.leaky_relu(self.norm(x), 0.1)
        return self.head(x.mean((2, 3)))


class GatedNormalized(nn.Module):
    def __init__(self, width=24, classes=10):
        super().__init__()
        self.first = nn.Conv2d(3, 2 * width, 5, stride=2)
        self.second = nn.Conv2d(width, 2 * width, 3, stride=2)
        self.head = nn.Linear(width, classes, bias=False)
        self.temperature = nn.Parameter(torch.tensor(10.0))

    def forward(self, x):
        x = F.glu(self.first(x), dim=1)
        a, b = self.second(x).chunk(2, dim=1)
        x = (torch.tanh(a) * torch.sigmoid(b)).amax(dim=(2, 3))
        return self.temperature * self.head(F.normalize(x, dim=1))


class UNetEncoder(nn.Module):
    def __init__(self, width=12, classes=10):
        super().__init__()
        self.down1 = self._block(3, width)
        self.down2 = self._block(width, 2 * width)
        self.middle = self._block(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1)
        self.merge2 = self._block(4 * width, 2 * width)
        self.merge1 = self._block(2 * width, width)
        self.head = nn.Linear(width, classes)

    def _block(self, into, out):
        return nn.Sequential(nn.Conv2d(into, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True))

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        x = self.middle(F.max_pool2d(second, 2))
        x = self.merge2(torch.cat([second, self.up2(x)], dim=1))
        x = self.merge1(torch.cat([first, self.up1(x)], dim=1))
        return self.head(x.mean(dim=[2, 3]))


class CnnLstm(nn.Module):
    def __init__(self, width=16, hidden=20, classes=10):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.lstm = nn.LSTM(width * 8, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        x = self.cnn(x)
        x = x.permute(0, 3, 1, 2).flatten(2)
        states, _ = self.lstm(x)
        return self.head(states[:, -1])


class PatchTransformer(nn.Module):
    def __init__(self, width=32, size=32, patch=8, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, width, patch, stride=patch)
        self.positions = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2, width))
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.encoder(x)[:, 0])


class TabularMlp(nn.Module):
    def __init__(self, columns=20, width=48, classes=4):
        super().__init__()
        self.enter = nn.BatchNorm1d(columns)
        self.first, self.second = nn.Linear(columns, width), nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = F.selu(self.first(self.enter(x)))
        x = x + F.elu(self.norm(self.second(self.drop(x))))
        return self.head(x)


class MaskedTextClassifier(nn.Module):
    def __init__(self, vocabulary=100, width=24, classes=3):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.conv = nn.Conv1d(width, width, 3, padding=1)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        mask = (tokens != 0).float().unsqueeze(-1)
        x = self.words(tokens) * mask
        x = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2) * mask
        return self.head(x.sum(1) / mask.sum(1).clamp(min=1))


class TinyGpt(nn.Module):
    """Causal attention written out, positions learned, the head tied to the embedding."""

    def __init__(self, vocabulary=50, width=32, heads=4, steps=16):
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(steps, width)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("mask", torch.tril(torch.ones(steps, steps)).view(1, 1, steps, steps))

    def forward(self, tokens):
        count, steps = tokens.shape
        x = self.words(tokens) + self.places(torch.arange(steps, device=tokens.device))
        q, k, v = self.qkv(self.norm1(x)).split(x.shape[-1], dim=2)
        q, k, v = (y.view(count, steps, self.heads, -1).transpose(1, 2) for y in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.mask[:, :, :steps, :steps] == 0, float("-inf"))
        y = (F.softmax(scores, dim=-1) @ v).transpose(1, 2).contiguous().view(count, steps, -1)
        x = x + self.project(y)
        x = x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))
        return F.linear(self.norm3(x), self.words.weight)


class WaveNet(nn.Module):
    """Dilated causal convolutions of a series, gated, with skips."""

    def __init__(self, width=16, classes=5):
        super().__init__()
        self.stem = nn.Conv1d(2, width, 1)
        self.filters = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2**i) for i in range(4))
        self.skips = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(4))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x, total = self.stem(x), 0
        for i, (conv, skip) in enumerate(zip(self.filters, self.skips)):
            a, b = conv(F.pad(x, (2**i, 0))).chunk(2, dim=1)
            y = skip(torch.tanh(a) * torch.sigmoid(b))
            x, total = x + y, total + y
        return self.head(F.relu(total).mean(-1))


class Cbam(nn.Module):
    """Attention of channels and of places (Woo et al. 2018)."""

    def __init__(self, width=16, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.squeeze, self.excite = nn.Linear(width, 4), nn.Linear(4, width)
        self.places = nn.Conv2d(2, 1, 7, padding=3)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = F.relu(self.stem(x))
        pooled = [x.mean((2, 3)), x.amax((2, 3))]
        gates = sum(self.excite(F.relu(self.squeeze(one))) for one in pooled)
        x = x * torch.sigmoid(gates)[:, :, None, None]
        maps = torch.cat([x.mean(1, keepdim=True), x.max(1, keepdim=True)[0]], dim=1)
        x = x * torch.sigmoid(self.places(maps))
        return self.head(F.max_pool2d(x, 2).mean((2, 3)))


class FourierMlp(nn.Module):
    """Sines and cosines of learned frequencies of a point."""

    def __init__(self, columns=3, bands=16, width=32, classes=2):
        super().__init__()
        self.bands = nn.Parameter(torch.randn(columns, bands))
        self.first, self.head = nn.Linear(2 * bands, width), nn.Linear(width, classes)

    def forward(self, x):
        phases = 2 * math.pi * torch.matmul(x, self.bands)
        x = torch.cat([phases.sin(), phases.cos()], dim=-1)
        return self.head(F.softplus(self.first(x)))


class MixtureOfExperts(nn.Module):
    def __init__(self, columns=12, experts=4, width=16, classes=5):
        super().__init__()
        self.gate = nn.Linear(columns, experts)
        self.up = nn.Parameter(torch.randn(experts, columns, width) / columns**0.5)
        self.down = nn.Parameter(torch.randn(experts, width, classes) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(experts, classes))

    def forward(self, x):
        shares = torch.softmax(self.gate(x), dim=-1)
        hidden = F.silu(torch.einsum("bi,eih->beh", x, self.up))
        each = torch.einsum("beh,ehc->bec", hidden, self.down) + self.bias
        return (shares.unsqueeze(-1) * each).sum(dim=1)


class LinearAttention(nn.Module):
    """Causal attention without a softmax (Katharopoulos et al. 2020), by cumulative sums."""

    def __init__(self, features=6, width=16, classes=4):
        super().__init__()
        self.enter = nn.Linear(features, width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.enter(x)
        q, k, v = F.elu(self.q(x)) + 1, F.elu(self.k(x)) + 1, self.v(x)
        sums = torch.cumsum(k.unsqueeze(-1) * v.unsqueeze(-2), dim=1)
        y = torch.einsum("btd,btde->bte", q, sums)
        y = y / (torch.einsum("btd,btd->bt", q, k.cumsum(1)).unsqueeze(-1) + 1e-6)
        return self.head((x + y).mean(1))


class StandardizedConv(nn.Conv2d):
    def forward(self, x):
        w = self.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, w, self.bias, self.stride, self.padding)


class StandardizedUpsampler(nn.Module):
    """Standardised weights, a pixel shuffle, and both kinds of upsampling."""

    def __init__(self, width=16, classes=10):
        super().__init__()
        self.first = StandardizedConv(3, width, 3, stride=2, padding=1)
        self.second = StandardizedConv(width, 2 * width, 3, stride=2, padding=1)
        self.third = nn.Conv2d(width // 2, width, 3, padding=1)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        first = F.relu(self.first(x))
        x = F.pixel_shuffle(self.second(first), 2)
        x = first + self.third(x) + F.interpolate(F.max_pool2d(first, 2), scale_factor=2, mode="nearest")
        return self.head(self.up(x).mean((2, 3)))


class Capsules(nn.Module):
    """Primary capsules, one step of routing by agreement, lengths as logits."""

    def __init__(self, width=8, capsules=6, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, capsules * width, 9, stride=6)
        self.weight = nn.Parameter(0.1 * torch.randn(capsules, width, classes * width))
        self.capsules, self.width, self.classes = capsules, width, classes

    def squash(self, x):
        length = x.pow(2).sum(-1, keepdim=True)
        return length / (1 + length) * x / torch.sqrt(length + 1e-8)

    def forward(self, x):
        x = self.stem(x).mean((2, 3)).view(-1, self.capsules, self.width)
        votes = torch.einsum("bcw,cwo->bco", self.squash(x), self.weight)
        votes = votes.view(-1, self.capsules, self.classes, self.width)
        mean = self.squash(votes.mean(1, keepdim=True))
        agreement = torch.softmax((votes * mean).sum(-1, keepdim=True), dim=2)
        return 5 * torch.linalg.vector_norm(self.squash((agreement * votes).sum(1)), dim=-1)


class AttentivePool(nn.Module):
    """A bidirectional GRU over a series; a learned query weighs its steps."""

    def __init__(self, features=6, hidden=12, classes=4):
        super().__init__()
        self.gru = nn.GRU(features, hidden, batch_first=True, bidirectional=True)
        self.query = nn.Parameter(torch.randn(2 * hidden))
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, x):
        states, _ = self.gru(x)
        shares = torch.softmax(torch.tanh(states) @ self.query, dim=1)
        return self.head((shares.unsqueeze(-1) * states).sum(1))


class Prototypes(nn.Module):
    """The logit of a class is minus the distance of its prototype."""

    def __init__(self, width=16, classes=6):
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv2d(3, width, 5, stride=4), nn.ReLU(), nn.Conv2d(width, width, 3, stride=2))
        self.prototypes = nn.Parameter(torch.randn(classes, width))
        self.log_scale = nn.Parameter(torch.zeros(classes))

    def forward(self, x):
        x = self.cnn(x).flatten(2).logsumexp(-1)
        distance = (x[:, None] - self.prototypes[None]).square().sum(-1)
        return -distance * self.log_scale.exp()


class InstancePrelu(nn.Module):
    """InstanceNorm, PReLU, mish, and a max over places."""

    def __init__(self, width=16, classes=10):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, width, 3, stride=2), nn.Conv2d(width, width, 3, stride=2)
        self.norm1, self.norm2 = nn.InstanceNorm2d(width, affine=True), nn.InstanceNorm2d(width)
        self.prelu, self.head = nn.PReLU(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.prelu(self.norm1(self.first(x)))
        x = F.mish(self.norm2(self.second(x)))
        return self.head(F.adaptive_max_pool2d(x, 1).flatten(1))


IMAGE = (3, 32, 32)
NETWORKS = {
    "mlp_mixer": (MlpMixer, IMAGE, "float32", 0),
    "conv_mixer": (ConvMixer, IMAGE, "float32", 0),
    "group_norm_residual": (GroupNormResidual, IMAGE, "float32", 0),
    "gated_normalized": (GatedNormalized, IMAGE, "float32", 0),
    "unet_encoder": (UNetEncoder, IMAGE, "float32", 0),
    "cnn_lstm": (CnnLstm, IMAGE, "float32", 0),
    "patch_transformer": (PatchTransformer, IMAGE, "float32", 0),
    "tabular_mlp": (TabularMlp, (20,), "float32", 0),
    "masked_text_classifier": (MaskedTextClassifier, (24,), "int64", 100),
    "tiny_gpt": (TinyGpt, (16,), "int64", 50),
    "wave_net": (WaveNet, (2, 40), "float32", 0),
    "cbam": (Cbam, IMAGE, "float32", 0),
    "fourier_mlp": (FourierMlp, (3,), "float32", 0),
    "mixture_of_experts": (MixtureOfExperts, (12,), "float32", 0),
    "linear_attention": (LinearAttention, (10, 6), "float32", 0),
    "standardized_upsampler": (StandardizedUpsampler, IMAGE, "float32", 0),
    "capsules": (Capsules, IMAGE, "float32", 0),
    "attentive_pool": (AttentivePool, (14, 6), "float32", 0),
    "prototypes": (Prototypes, IMAGE, "float32", 0),
    "instance_prelu": (InstancePrelu, IMAGE, "float32", 0),
}
