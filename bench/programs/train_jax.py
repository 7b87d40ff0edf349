"""A training in JAX: a small transformer, synthetic tokens, one compiled step. A line for some steps, as train.py."""
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp

import told

LAYERS, WIDTH, HEADS, BATCH, LENGTH, VOCABULARY = 8, 768, 12, 16, 256, 8192


def parameters(key):
    def weight(*shape):
        nonlocal key
        key, one = jax.random.split(key)
        return jax.random.normal(one, shape, jnp.float32) * shape[-2] ** -0.5
    layers = [{"qkv": weight(WIDTH, 3 * WIDTH), "out": weight(WIDTH, WIDTH), "up": weight(WIDTH, 4 * WIDTH),
               "down": weight(4 * WIDTH, WIDTH)} for _ in range(LAYERS)]
    return {"token": weight(VOCABULARY, WIDTH), "place": weight(LENGTH, WIDTH), "layers": layers}


def norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def loss(p, tokens):
    p = jax.tree.map(lambda a: a.astype(jnp.bfloat16), p)
    x = p["token"][tokens[:, :-1]] + p["place"]
    mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    for layer in p["layers"]:
        qkv = (norm(x) @ layer["qkv"]).reshape(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS)
        q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
        scores = (q @ k.transpose(0, 1, 3, 2)).astype(jnp.float32) * (WIDTH // HEADS) ** -0.5
        a = jax.nn.softmax(jnp.where(mask, scores, -1e30)).astype(jnp.bfloat16) @ v
        x = x + a.transpose(0, 2, 1, 3).reshape(BATCH, LENGTH, WIDTH) @ layer["out"]
        x = x + jax.nn.gelu(norm(x) @ layer["up"]) @ layer["down"]
    logits = jax.nn.log_softmax((norm(x) @ p["token"].T).astype(jnp.float32))
    return -jnp.take_along_axis(logits, tokens[:, 1:, None], -1).mean()


@jax.jit
def step(p, tokens):
    value, gradient = jax.value_and_grad(loss)(p, tokens)
    return jax.tree.map(lambda a, g: a - 0.01 * g, p, gradient), value


params = parameters(jax.random.key(1))
data = jax.random.randint(jax.random.key(2), (BATCH, LENGTH + 1), 0, VOCABULARY)
last = jnp.zeros(())


def iteration():
    global params, last
    params, last = step(params, data)
    last.block_until_ready()


for _ in range(5):
    iteration()
n = told.saturate(iteration)
told.final("train", None, n=n, loss=float(last))
