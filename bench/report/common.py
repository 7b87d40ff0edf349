"""What the parts of `cede bench` share: its error, numbers as C reads and prints them, JSON as results have it."""
import json
import math
import os
import re
import subprocess

BYTES_MAX = 64 << 20  # of a result file; the largest scenario with a hundred repeats makes 50 MiB
NUMBER = re.compile(r"[+-]?(?:0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?"
                    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")


class Wrong(Exception):
    """An error that the user is told: what was attempted, on what, and what to do. status is the exit status it leads to."""

    def __init__(self, text, status=2):
        super().__init__(text)
        self.status = status


class Raw(str):
    """A part of the output that is JSON already."""


def strtod(text, at=0):
    """Returns the number that begins at `at` (None if there is none) and where it ends, as strtod(3) does."""
    m = NUMBER.match(text, at)
    if not m:
        return None, at
    try:
        return float.fromhex(m[0]) if "x" in m[0].lower() else float(m[0]), m.end()
    except OverflowError:
        return math.inf, m.end()


def parse_double(text, lo, hi):
    """Returns the number that the text is, or None if it is not a number from lo to hi."""
    v, end = strtod(text)
    tiny = v is not None and 0 < abs(v) < 2.2250738585072014e-308
    return v if v is not None and end == len(text) and lo <= v <= hi and not tiny else None


def cut(text, n):
    """Returns the first n bytes of the text."""
    return text.encode("utf-8", "surrogateescape")[:n].decode("utf-8", "surrogateescape")


def is_number(v):
    return isinstance(v, (int, float)) and not isinstance(v, bool)


def get(o, *keys):
    """Returns o[key][key]..., or None if there is no such thing, because results may be anybody's."""
    for k in keys:
        if isinstance(k, int):
            o = o[k] if isinstance(o, list) and k < len(o) else None
        else:
            o = o.get(k) if isinstance(o, dict) else None
    return o


def text_of(o, key):
    v = get(o, key)
    return v if isinstance(v, str) else ""


def number_of(v):
    return v if is_number(v) else 0


def items(o, *keys):
    """Returns the pairs of key and value of an object, and none of anything else."""
    v = get(o, *keys)
    return v.items() if isinstance(v, dict) else ()


def elements(o, *keys):
    v = get(o, *keys)
    return v if isinstance(v, list) else ()


def metric(cell_or_row, role, name):
    """Returns a number of a cell, or a summary of a row, or None. The name may lack its unit."""
    m = get(cell_or_row, "roles", role)
    return get(m, name) if isinstance(m, dict) and name in m else get(m, name + "_us")


def part(summary, which="median"):
    """Returns "median", "min" or "max" of a summary, or NAN if it has none."""
    v = get(summary, which)
    return float(v) if is_number(v) else math.nan


def real(v):
    """Returns the number with six digits, as all results have it."""
    text = f"{v:.6g}"
    if "e" in text:
        mantissa, exponent = text.split("e")
        return f"{mantissa}e{int(exponent)}"
    return text if "." in text else text + ".0"


def dumps(v, indent, level=0):
    """Returns the text of results, for files and for --json."""
    if isinstance(v, Raw):
        return v
    if isinstance(v, float):
        return real(v) if math.isfinite(v) else "null"
    if not isinstance(v, (dict, list)) or not v:
        return json.dumps(v, ensure_ascii=False)
    outer, inner = "\n" + " " * indent * level, "\n" + " " * indent * (level + 1)
    if isinstance(v, list):
        return f"[{inner}" + f",{inner}".join(dumps(x, indent, level + 1) for x in v) + f"{outer}]"
    return (f"{{{inner}" + f",{inner}".join(f"{json.dumps(k, ensure_ascii=False)}: {dumps(x, indent, level + 1)}"
                                            for k, x in v.items()) + f"{outer}}}")


def _unique(pairs):
    o = dict(pairs)
    if len(o) < len(pairs):
        raise ValueError("a key is there twice")
    return o


def _finite(text):
    v = float(text)
    if not math.isfinite(v):
        raise ValueError("not a number of JSON")
    return v


def _whole(text):
    if len(text) > 19:
        raise ValueError("too large")
    return int(text)


def load_json(path):
    """Returns what is in the file, or None if it cannot be read or is not JSON."""
    try:
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size  # read() makes room for all that it is asked for
            data = f.read(min(size or BYTES_MAX, BYTES_MAX) + 1)
        if len(data) > BYTES_MAX:
            return None
        return json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_float=_finite, parse_int=_whole,
                          parse_constant=_finite)
    except (OSError, ValueError, RecursionError):
        return None


def put_file(cede, path, data):
    """Replaces a file at once and whole, or leaves it as it was, by what all of cede writes files with (base/out_file.h). It runs
    in a session of its own, so that ^C does not end it half-way. Raises Wrong."""
    r = subprocess.run([cede, "bench", "put", path], input=data.encode("utf-8", "replace") if isinstance(data, str) else data,
                       stderr=subprocess.PIPE, start_new_session=True, check=False)
    if r.returncode:
        raise Wrong(r.stderr.decode("utf-8", "replace").strip() or f"cannot write {path}", 1)
