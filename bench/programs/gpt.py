"""Language models in their shape, with random weights and random tokens: GPT for training, and Decoder, whose
decoding step has fixed addresses and can be a CUDA graph. For train.py, decode.py and llm.py. And transformers' Llama, for
the programs that serve it."""
import torch
import torch.nn.functional as F
from torch import nn

# layers, width, heads, batch, tokens of a sequence, vocabulary
SIZES = {"gpt": (12, 1024, 16, 16, 512, 50304), "nanogpt": (6, 384, 6, 64, 256, 65)}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Called with tokens, which are their own targets one place further on: the loss."""

    def __init__(self, size):
        super().__init__()
        layers, width, heads, self.batch, self.length, self.vocabulary = SIZES[size]
        self.token, self.place = nn.Embedding(self.vocabulary, width), nn.Embedding(self.length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, self.vocabulary, bias=False)

    def forward(self, tokens):
        with torch.autocast("cuda", torch.bfloat16):
            x = self.token(tokens[:, :-1]) + self.place.weight
            logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())


class Decoder:
    """`slots` sequences of up to `context` tokens; without embeddings: the last token's result is the next input."""

    def __init__(self, slots, layers=24, width=2048, context=1024):
        self.slots, self.width, self.heads, self.context = slots, width, width // 128, context
        self.layers = [{"qkv": self._weight(3 * width, width), "out": self._weight(width, width),
                        "up": self._weight(4 * width, width), "down": self._weight(width, 4 * width),
                        "k": self._weight(slots, self.heads, context, 128),
                        "v": self._weight(slots, self.heads, context, 128)} for _ in range(layers)]
        self.state = torch.randn(slots, width, device="cuda", dtype=torch.half)

    @staticmethod
    def _weight(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.half) / shape[-1] ** 0.5

    def _forward(self, h, attend):
        """h: tokens x width."""
        w = self.width
        for layer in self.layers:
            qkv = F.linear(F.layer_norm(h, (w,)), layer["qkv"])
            h = h + F.linear(attend(layer, qkv), layer["out"])
            h = h + F.linear(F.gelu(F.linear(F.layer_norm(h, (w,)), layer["up"])), layer["down"])
        return F.layer_norm(h, (w,))

    def token(self):
        """One more token of every slot, each over its whole context."""
        def attend(layer, qkv):
            q, k, v = qkv.view(self.slots, 3, self.heads, 1, 128).unbind(1)
            layer["k"][:, :, -1:], layer["v"][:, :, -1:] = k, v
            return F.scaled_dot_product_attention(q, layer["k"], layer["v"]).reshape(self.slots, self.width)
        self.state.copy_(self._forward(self.state, attend))

    def prefill(self, slot, tokens):
        """A prompt of so many tokens, all at once, into a slot."""
        def attend(layer, qkv):
            q, k, v = qkv.view(tokens, 3, self.heads, 128).permute(1, 2, 0, 3)
            layer["k"][slot, :, :tokens], layer["v"][slot, :, :tokens] = k, v
            a = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
            return a.transpose(0, 1).reshape(tokens, self.width)
        prompt = torch.randn(tokens, self.width, device="cuda", dtype=torch.half)
        self.state[slot] = self._forward(prompt, attend)[-1]

    def graph(self):
        """token() as a CUDA graph."""
        return captured(self.token)


def llama():
    """transformers' Llama of 1.1 billion parameters, in bfloat16, which never ends an answer by itself."""
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32,
                         num_key_value_heads=4, vocab_size=32000, max_position_embeddings=2048, bos_token_id=None,
                         eos_token_id=None, pad_token_id=0)
    return LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()


def captured(step):
    """A CUDA graph of step(), which has run before so that libraries have set themselves up."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph
