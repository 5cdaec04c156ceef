"""PyTorch as its tutorials have it: nn layers with two biases per LSTM, Adam, a loss that is read in each step."""

import torch
from torch import nn


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 50, num_layers=4, dropout=0.2, batch_first=True)
        self.dropout, self.fc = nn.Dropout(0.2), nn.Linear(50, 1)

    def forward(self, x):
        return self.fc(self.dropout(self.lstm(x)[0][:, -1]))


class Tagger(nn.Module):
    def __init__(self, vocabulary, outputs):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 64)
        self.lstm = nn.LSTM(64, 64, batch_first=True, bidirectional=True)
        self.dropout, self.fc = nn.Dropout(0.5), nn.Linear(128, outputs)

    def forward(self, x):
        return self.fc(self.dropout(self.lstm(self.embedding(x))[0]))


def tiny_cnn(outputs):
    layers, channels = [], 3
    for index, (out, stride) in enumerate([(64, 1), (128, 1), (128, 2), (256, 1), (256, 2), (512, 1)]):
        layers += [nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
        layers += [nn.MaxPool2d(3, 2, 1)] if index == 0 else []
        channels = out
    return nn.Sequential(*layers, nn.AvgPool2d(3, 2, 1), nn.Flatten(), nn.Linear(512 * 4 * 4, outputs))


def diabetes_ann(outputs):
    blocks = [nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 32), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*blocks, nn.Linear(32, outputs))


def make(model, inputs, target, task, threads):
    """Steps on one batch, and the number of parameters."""
    torch.set_num_threads(threads)
    x, y = torch.from_numpy(inputs), torch.from_numpy(target)
    if model == "tweet_span":
        network, criterion = Tagger(task.inputs[0].vocabulary, task.outputs), nn.CrossEntropyLoss(ignore_index=-1)
        loss_of = lambda: criterion(network(x).flatten(0, 1), y.flatten())  # noqa: E731
    else:
        network, criterion = {
            "lstm_ibm": lambda: (Forecast(), nn.MSELoss()),
            "tiny_cnn": lambda: (tiny_cnn(task.outputs), nn.CrossEntropyLoss()),
            "diabetes_ann": lambda: (diabetes_ann(task.outputs), nn.BCEWithLogitsLoss()),
        }[model]()
        loss_of = lambda: criterion(network(x), y)  # noqa: E731
    optimizer = torch.optim.Adam(network.parameters(), lr=0.001, eps=1e-7)

    def go(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            loss = loss_of()
            loss.backward()
            optimizer.step()
            loss.item()

    return go, sum(p.numel() for p in network.parameters())
