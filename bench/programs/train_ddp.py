"""A training job on several GPUs: ResNet-50, one process a GPU, gradients reduced by NCCL after each step
(DistributedDataParallel). This process is rank 0 and reports; it starts the others and ends them.
"""
import argparse
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed
import torchvision

import told

parser = argparse.ArgumentParser()
parser.add_argument("--gpus", type=int, default=2)
parser.add_argument("--batch", type=int, default=32, help="on each GPU")
parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
parser.add_argument("--meet", help=argparse.SUPPRESS)
args = parser.parse_args()

others = []
if args.rank == 0:
    folder = tempfile.TemporaryDirectory(prefix="train-ddp-")
    args.meet = os.path.join(folder.name, "ranks")
    for rank in range(1, args.gpus):
        others.append(subprocess.Popen([sys.executable, __file__, "--gpus", str(args.gpus), "--batch", str(args.batch),
                                        "--rank", str(rank), "--meet", args.meet]))
else:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with rank 0, however that ends
torch.cuda.set_device(args.rank)
torch.distributed.init_process_group("nccl", init_method="file://" + args.meet, rank=args.rank, world_size=args.gpus,
                                     device_id=torch.device("cuda", args.rank))
torch.manual_seed(1)
model = torch.nn.parallel.DistributedDataParallel(torchvision.models.resnet50().cuda(), device_ids=[args.rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_fn = torch.nn.CrossEntropyLoss()
x = torch.randn(args.batch, 3, 224, 224, device="cuda")
y = torch.randint(0, 1000, (args.batch,), device="cuda")
n = 0
# The other ranks run until rank 0 ends them: a signal in the middle of a collective would leave its peers in it.
while args.rank or not told.stop:
    optimizer.zero_grad(set_to_none=True)
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    value = loss.item()
    n += 1
    if args.rank == 0 and n > 10:  # the first ones warm up
        told.line(t=time.monotonic(), n=n, work_us=(n - 10) * 1e6)
for other in others:
    other.kill()
    other.wait()
told.final("train", None, n=n, loss=value)
sys.stdout.flush()
os._exit(0)  # NCCL would wait for the others
