"""gloo_rank.py: one rank of a Gloo job in PyTorch for `argand bench dist`. Commands and answers: dist_rank.lua.

Arguments: rank, size, a file through which the ranks find each other. Gloo's all_reduce works in place only.
"""
import sys
import time

import torch
import torch.distributed as dist

PERIOD, FRESH = 61, 100


class Sampler:
    def __init__(self, rank, size):
        self.own, self.size, self.sum = rank + 1, size, size * (size + 1) // 2
        self.count = None
        # How often sums may be summed again before f32 rounds them.
        exact_bits = 90 if size & (size - 1) == 0 else 14
        self.period = max(1, exact_bits // max(1, (size - 1).bit_length()))

    def hold(self, count):
        if count != self.count:
            self.count = count
            self.base = (torch.arange(count, dtype=torch.int64) % PERIOD + 1).to(torch.float32)
            self.data = torch.empty(count)
            self.view = self.data.numpy()

    def fill(self):
        torch.mul(self.base, self.own, out=self.data)
        self.scale = self.sum

    def spots(self, step):
        count = self.count
        return 0, count - 1, step * 2654435761 % count, (step * 40503 + 12345) % count

    def wrong(self):
        return int((self.data != self.base * self.scale).sum())

    def wait_together(self, lead_s):
        start = torch.tensor([time.monotonic() + lead_s], dtype=torch.float64)
        dist.all_reduce(start, op=dist.ReduceOp.MAX)
        start = start.item()
        while time.monotonic() < start:
            pass

    def step(self, step, is_last, lead_s):
        """One timed iteration: (wrong, start, end)."""
        spots = () if is_last else self.spots(step)
        for e in spots:
            self.view[e] = self.own * (FRESH + (e + step) % PERIOD)
        if lead_s > 0:
            self.wait_together(lead_s)
        start = time.monotonic()
        dist.all_reduce(self.data)
        end = time.monotonic()
        wrong = 0
        for e in spots:
            wrong += self.view[e] != self.sum * (FRESH + (e + step) % PERIOD)
        for e in spots:
            self.view[e] = self.scale * (1 + e % PERIOD)
        return wrong, start, end

    def sample(self, count, iterations, lead_s):
        self.hold(count)
        self.fill()
        dist.all_reduce(self.data)
        wrong, times = self.wrong(), []
        for step in range(1, iterations + 1):
            if step % self.period == 0:
                self.fill()
            else:
                self.scale *= self.size
            bad, start, end = self.step(step, step == iterations, lead_s)
            wrong += bad
            times += (start, end)
        return wrong + self.wrong(), times


def main():
    rank, size, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=size)
    print("ready Gloo of PyTorch", torch.__version__, flush=True)
    sampler = Sampler(rank, size)
    for line in sys.stdin:
        _, count, iterations, lead_us = line.split()
        wrong, times = sampler.sample(int(count), int(iterations), int(lead_us) / 1e6)
        print("ok", wrong, *("%.9f" % t for t in times), flush=True)


main()
