"""Image generation in its shape: a U-Net as those of latent diffusion (ResNet blocks, attention at the coarser levels,
fp16, eager), 20 steps an image, one image after the other. Random weights. The latency is that of an image."""
import torch
import torch.nn.functional as F
from torch import nn

import told

WIDTHS, SIZE, STEPS = (192, 384, 576), 64, 20


class Block(nn.Module):
    def __init__(self, before, width, attends):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, before), nn.GroupNorm(32, width)
        self.conv1, self.conv2 = nn.Conv2d(before, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.skip = nn.Conv2d(before, width, 1) if before != width else nn.Identity()
        self.time = nn.Linear(WIDTHS[0], width)
        self.qkv, self.out = (nn.Linear(width, 3 * width), nn.Linear(width, width)) if attends else (None, None)

    def forward(self, x, time):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        x = self.skip(x) + self.conv2(F.silu(self.norm2(h)))
        if self.qkv is None:
            return x
        b, c, height, width = x.shape
        q, k, v = self.qkv(x.flatten(2).transpose(1, 2)).view(b, -1, 3, c // 64, 64).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, -1, c)
        return x + self.out(a).transpose(1, 2).view(b, c, height, width)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(4, WIDTHS[0], 3, padding=1), nn.Conv2d(WIDTHS[0], 4, 3, padding=1)
        down = [(WIDTHS[max(i - 1, 0)], w) for i, w in enumerate(WIDTHS)]
        self.down = nn.ModuleList(nn.ModuleList((Block(a, b, i > 0), Block(b, b, i > 0))) for i, (a, b) in enumerate(down))
        self.up = nn.ModuleList(nn.ModuleList((Block(2 * b, b, i > 0), Block(b, a, i > 0))) for i, (a, b) in enumerate(down))

    def forward(self, x, time):
        x, kept = self.first(x), []
        for i, blocks in enumerate(self.down):
            x = F.avg_pool2d(x, 2) if i else x
            for block in blocks:
                x = block(x, time)
            kept.append(x)
        for i in reversed(range(len(WIDTHS))):
            for block in self.up[i]:
                x = block(torch.cat((x, kept.pop()), 1) if block is self.up[i][0] else x, time)
            x = F.interpolate(x, scale_factor=2.0) if i else x
        return self.last(x)


torch.manual_seed(6)
with torch.no_grad():
    model = UNet().cuda().half().eval().to(memory_format=torch.channels_last)
    noise = torch.randn(2, 4, SIZE, SIZE, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)
    times = torch.randn(STEPS, 2, WIDTHS[0], device="cuda", dtype=torch.half)

    def image():
        x = noise
        for t in times:
            x = x - model(x, t) / STEPS
        torch.cuda.synchronize()
        return x

    for _ in range(3):
        last = image()
    clock = told.closed(image)
told.final("unet", bool(torch.isfinite(last).all()), n=len(clock.latencies))
