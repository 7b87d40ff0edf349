"""A PyTorch program for `campaign --program`: products of matrices of small whole numbers, which a GPU has to
get exactly right, on two streams. A line for each sixteen; on SIGTERM the verdict, and status 1 if one was wrong."""
import signal
import sys

import torch

ended = False


def end(*_):
    global ended
    ended = True


signal.signal(signal.SIGTERM, end)
torch.manual_seed(1)
a = torch.randint(-8, 9, (2048, 2048)).float()
b = torch.randint(-8, 9, (2048, 2048)).float()
expected = (a.double() @ b.double()).float().cuda()
a, b = a.cuda(), b.cuda()
torch.backends.cuda.matmul.allow_tf32 = False
streams = [torch.cuda.Stream(), torch.cuda.Stream()]
wrong = torch.zeros(2, device="cuda")
n = 0
while not ended:
    for i, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            for _ in range(8):
                wrong[i] += ((a @ b) != expected).sum()
    torch.cuda.synchronize()
    n += 1
    print(n, flush=True)
print("right" if wrong.sum().item() == 0 else "wrong", flush=True)
sys.exit(wrong.sum().item() != 0)
