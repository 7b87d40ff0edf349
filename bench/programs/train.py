"""An ordinary training job: ResNet-50, or --model gpt (12 layers) or nanogpt (6), synthetic data, fixed seed. A
line an iteration, and at the end a digest of all weights, so that two runs of the same length can be compared bit by bit, whatever happened
to them in between.
"""
import argparse
import hashlib
import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch

import gpt
import told

parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=0, help="0: until SIGTERM")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--model", default="resnet50")
parser.add_argument("--deterministic", action="store_true")
args = parser.parse_args()

torch.manual_seed(1)
if args.deterministic:
    torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
if args.model in gpt.SIZES:
    model = gpt.GPT(args.model).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, model.vocabulary, (model.batch, model.length + 1), device="cuda")

    def forward():
        return model(tokens)
else:
    import torchvision
    model = getattr(torchvision.models, args.model)().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_fn = torch.nn.CrossEntropyLoss()
    x = torch.randn(args.batch, 3, 224, 224, device="cuda")
    y = torch.randint(0, 1000, (args.batch,), device="cuda")

    def forward():
        return loss_fn(model(x), y)
n = 0
while not told.stop and (args.iterations == 0 or n < args.iterations):
    optimizer.zero_grad(set_to_none=True)
    loss = forward()
    loss.backward()
    optimizer.step()
    value = loss.item()
    n += 1
    if n > 10:  # the first ones warm up
        told.line(t=time.monotonic(), n=n, work_us=(n - 10) * 1e6)
digest = hashlib.sha256()
for p in model.state_dict().values():
    digest.update(p.detach().cpu().numpy().tobytes())
told.final("train", None, n=n, loss=value, digest=digest.hexdigest())
