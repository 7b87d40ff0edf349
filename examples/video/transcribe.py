#!/usr/bin/env python3
"""What was said in the last seconds of a video conference, in Whisper's shape: an encoder over 30 s of
audio, then a decoder that writes one token at a time for several beams (random weights, fp16, a CUDA
graph a token, and the host looks at each). A request every period, due before the next. Ends with one
object of JSON.

    cede run -c batch -- python3 transcribe.py --seconds 30

It reports each request and its deadline to cede. Where libcede is not installed, `cede run --deadline 3s`
does it from outside. The default size is to take about 1.2 s of an H200; --measure tells, and how many
--tokens make 1 s."""
import argparse
import time

import common

VOCABULARY = 51865
MELS = 80

parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
common.options(parser, "a request")
parser.add_argument("--period", type=float, default=3, help="seconds from one request to the next")
parser.add_argument("--due", type=float, default=0, help="seconds after it came (default: the period)")
parser.add_argument("--tokens", type=int, default=384, help="that are written in a request")
parser.add_argument("--layers", type=int, default=32, help="of the encoder, and of the decoder")
parser.add_argument("--width", type=int, default=1280, help="a multiple of 64")
parser.add_argument("--beams", type=int, default=5)
parser.add_argument("--audio", type=int, default=1500, help="positions of the encoder")
args = parser.parse_args()
if args.period <= 0 or args.due < 0 or args.width % 64 or \
        min(args.tokens, args.layers, args.width, args.beams, args.audio) < 1:
    parser.error("--width is a multiple of 64, and all sizes are above 0")


class Network:
    def __init__(self):
        torch = common.torch()
        import torch.nn.functional as F
        self.torch, self.F = torch, F
        torch.manual_seed(6)
        w, d, b, t = args.width, 64, args.beams, args.tokens
        self.heads = w // d

        def weight(*shape):
            fan_in = shape[1] * (shape[2] if len(shape) > 2 else 1)
            return (torch.randn(*shape, device="cuda") / fan_in ** 0.5).half()

        def zeros(*shape, dtype=torch.half):
            return torch.zeros(*shape, device="cuda", dtype=dtype)

        def block():
            return dict(qkv=weight(3 * w, w), out=weight(w, w), up=weight(4 * w, w),
                        down=weight(w, 4 * w))

        self.audio_host = torch.randn(1, MELS, 2 * args.audio).half().pin_memory()
        self.audio = zeros(1, MELS, 2 * args.audio)
        self.front = weight(w, MELS, 3), weight(w, w, 3)
        self.where = weight(args.audio, w)
        self.encoder = [block() for _ in range(args.layers)]
        self.decoder = [dict(block(), query=weight(w, w), back=weight(w, w), heard=weight(2 * w, w),
                             k=zeros(b, self.heads, t, d), v=zeros(b, self.heads, t, d),
                             heard_k=zeros(1, self.heads, args.audio, d),
                             heard_v=zeros(1, self.heads, args.audio, d))
                        for _ in range(args.layers)]
        self.words, self.places = weight(VOCABULARY, w), weight(t, w)
        self.index = torch.arange(t, device="cuda")
        self.place = zeros(1, dtype=torch.long)
        self.last = zeros(b, dtype=torch.long)
        self.text = zeros(b, t, dtype=torch.long)
        self.fine = torch.ones((), device="cuda", dtype=torch.bool)
        with torch.no_grad():
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.listen()
                for _ in range(min(3, t)):
                    self.token()
                self.place.zero_()
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.token()
        torch.cuda.synchronize()
        self.serve()
        self.expected = self.text.clone()

    def normal(self, x):
        return self.F.layer_norm(x, (args.width,))

    def think(self, x, l):
        F = self.F
        return x + F.linear(F.gelu(F.linear(self.normal(x), l["up"])), l["down"])

    def listen(self):
        """The encoder, and what the decoder's layers keep of it."""
        F, n = self.F, args.audio
        self.audio.copy_(self.audio_host, non_blocking=True)
        x = F.gelu(F.conv1d(self.audio, self.front[0], padding=1))
        x = F.gelu(F.conv1d(x, self.front[1], padding=1, stride=2))
        x = x[0].transpose(0, 1) + self.where
        for l in self.encoder:
            q, k, v = (y.transpose(0, 1)[None] for y in
                       F.linear(self.normal(x), l["qkv"]).view(n, 3, self.heads, 64).unbind(1))
            a = F.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1).reshape(n, args.width)
            x = self.think(x + F.linear(a, l["out"]), l)
        x = self.normal(x)
        for l in self.decoder:
            k, v = F.linear(x, l["heard"]).view(n, 2, self.heads, 64).unbind(1)
            l["heard_k"].copy_(k.transpose(0, 1)[None])
            l["heard_v"].copy_(v.transpose(0, 1)[None])

    def token(self):
        """One more for each beam."""
        torch, F, b, w = self.torch, self.F, args.beams, args.width
        x = self.words[self.last] + self.places.index_select(0, self.place)
        so_far = (self.index <= self.place).view(1, 1, 1, -1)
        for l in self.decoder:
            q, k, v = F.linear(self.normal(x), l["qkv"]).view(b, 3, self.heads, 1, 64).unbind(1)
            l["k"].index_copy_(2, self.place, k)
            l["v"].index_copy_(2, self.place, v)
            a = F.scaled_dot_product_attention(q, l["k"], l["v"], attn_mask=so_far).reshape(b, w)
            x = x + F.linear(a, l["out"])
            # All beams hear the same, so they are the rows of one query.
            q = F.linear(self.normal(x), l["query"]).view(b, self.heads, 64).transpose(0, 1)[None]
            a = F.scaled_dot_product_attention(q, l["heard_k"], l["heard_v"])
            x = x + F.linear(a[0].transpose(0, 1).reshape(b, w), l["back"])
            x = self.think(x, l)
        scores = F.linear(self.normal(x), self.words)
        self.fine.logical_and_(torch.isfinite(scores).all())
        self.last.copy_(scores.argmax(-1))
        self.text.index_copy_(1, self.place, self.last[:, None])
        self.place.add_(1)

    def serve(self):
        with self.torch.no_grad():
            self.place.zero_()
            self.last.zero_()
            self.listen()
            for _ in range(args.tokens):
                self.graph.replay()
                self.last[0].item()  # is it the end? The host has to look
        self.torch.cuda.current_stream().synchronize()

    def facts(self):
        """Whether nothing has overflown, and the last text is what the first was."""
        return dict(verified=bool(self.fine), same=bool(self.torch.equal(self.text, self.expected)))


def main():
    network = None if args.pretend_ms else Network()
    serve = (lambda: time.sleep(args.pretend_ms / 1e3)) if args.pretend_ms else network.serve
    if args.measure:
        start = time.monotonic()
        for _ in range(3):
            serve()
        took = (time.monotonic() - start) / 3
        print(f'{{"request_ms": {took * 1e3:.1f}, "tokens": {args.tokens}, '
              f'"tokens_for_1_s": {int(args.tokens / took)}}}')
        return
    run = common.Run("transcription", args.period, args.due or args.period, args.seconds, args.report)
    run.requests(serve, drop=False)
    run.final(**(network.facts() if network else dict(verified=None)))


main()
