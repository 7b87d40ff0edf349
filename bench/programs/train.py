"""An ordinary training job that knows nothing of cede: ResNet-50, synthetic data, fixed seed.

Prints one JSON line an iteration and at the end a digest of all weights, so that two runs of the same
length can be compared bit by bit, whatever happened to them in between.
"""
import argparse
import hashlib
import json
import os
import signal
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=0, help="0: until SIGTERM")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--deterministic", action="store_true")
args = parser.parse_args()

torch.manual_seed(1)
if args.deterministic:
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
else:
    torch.backends.cudnn.benchmark = True

stop = False


def on_term(*_):
    global stop
    stop = True


signal.signal(signal.SIGTERM, on_term)
model = torchvision.models.resnet50().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_fn = torch.nn.CrossEntropyLoss()
x = torch.randn(args.batch, 3, 224, 224, device="cuda")
y = torch.randint(0, 1000, (args.batch,), device="cuda")
n = 0
while not stop and (args.iterations == 0 or n < args.iterations):
    optimizer.zero_grad(set_to_none=True)
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    value = loss.item()
    n += 1
    print(json.dumps({"t": time.monotonic(), "n": n, "loss": value}), flush=True)
digest = hashlib.sha256()
for p in model.state_dict().values():
    digest.update(p.detach().cpu().numpy().tobytes())
print(json.dumps({"final": True, "n": n, "loss": value, "digest": digest.hexdigest()}), flush=True)
