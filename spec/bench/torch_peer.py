"""torch_peer.py: runs the cases of lua/argand/bench/cases.lua in PyTorch, as a server on standard input.

A line "threads<TAB>count<TAB>case" asks for `count` runs of the case; the answer is one line with the seconds they took, or
"none" for a case that is not here. The first line of output is PyTorch's version.
"""
import sys
import time

import torch
import torch.nn.functional as F

MI = 1 << 20


def repeated(fn):
    def run(n):
        for _ in range(n):
            fn()
    return run


def add_one():
    a, b = torch.ones(1), torch.ones(1)

    def run(n):
        for _ in range(n):
            a + b
    return run


def chain():
    x, w = torch.full((1,), 0.5, requires_grad=True), torch.full((1,), 0.9)

    def step():
        y = x
        for _ in range(10):
            y = y * w + w
        y.backward()
        x.grad = None
    return repeated(step)


def fresh_outputs():
    p, q = torch.randn(MI), torch.randn(MI)
    return repeated(lambda: p * q + p - q * 0.5)


def of_square(fn):
    def make():
        x = torch.randn(1024, 1024)
        return repeated(lambda: fn(x))
    return make


def layer_norm():
    x, weight, bias = torch.randn(1024, 1024), torch.ones(1024), torch.zeros(1024)
    return repeated(lambda: F.layer_norm(x, (1024,), weight, bias))


def product(m, n, k):
    def make():
        a, b = torch.randn(m, k), torch.randn(k, n)
        return repeated(lambda: a @ b)
    return make


def cross_entropy():
    logits = torch.randn(256, 50257, requires_grad=True)
    labels = torch.randint(0, 50257, (256,))

    def step():
        F.cross_entropy(logits, labels).backward()
        logits.grad = None
    return repeated(step)


def adamw(count, size):
    def make():
        params = [torch.randn(size, requires_grad=True) for _ in range(count)]
        for p in params:
            p.grad = torch.randn(size)
        # foreach is PyTorch's fast form for many small tensors, and the slower one for large ones.
        optimizer = torch.optim.AdamW(params, lr=1e-4, foreach=count > 1)
        return repeated(optimizer.step)
    return make


def mlp_step():
    model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)
    x, labels = torch.randn(64, 784), torch.randint(0, 10, (64,))

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()
    return repeated(step)


CASES = {
    "add, 1 element": add_one,
    "chain of 20, 1 element, with backward": chain,
    "p*q + p - q*0.5, 1 Mi": fresh_outputs,
    "exp, 1 Mi": of_square(torch.exp),
    "tanh, 1 Mi": of_square(torch.tanh),
    "gelu, 1 Mi": of_square(F.gelu),
    "sum, 1 Mi": of_square(torch.sum),
    "sum over dim 1, 1024x1024": of_square(lambda x: x.sum(0)),
    "softmax, 1024x1024": of_square(lambda x: x.softmax(-1)),
    "layer norm, 1024x1024": layer_norm,
    "cross entropy, 256x50257, with backward": cross_entropy,
    "AdamW, 10 M parameters": adamw(1, 10_000_000),
    "AdamW, 100 x 100 parameters": adamw(100, 100),
    "MLP 784-128-10, batch 64, Adam step": mlp_step,
}
for size in (64, 128, 256, 512, 1024, 2048):
    CASES[f"matmul {size}x{size}x{size}"] = product(size, size, size)
CASES["matmul 64x128x784"] = product(64, 128, 784)


def main():
    print(torch.__version__, flush=True)
    current, run = None, None
    for line in sys.stdin:
        threads, count, name = line.rstrip("\n").split("\t")
        if name not in CASES:
            print("none", flush=True)
            continue
        torch.set_num_threads(int(threads))
        if name != current:
            run = None
            current, run = name, CASES[name]()
        start = time.perf_counter()
        run(int(count))
        print(time.perf_counter() - start, flush=True)


main()
