#!/usr/bin/env python3
"""Serves models over HTTP, each with a class: latency for answers that users wait for, batch for bulk work. Two such
programs share a GPU through cede, or one serves both models through one queue.

    server.py --models high=latency --port 8001 &
    server.py --models low=batch --port 8002 &
    curl -d '{"texts": ["a sentence"], "deadline_ms": 50}' http://127.0.0.1:8001/high

It sets the class of its process (cede.Client), and reports each request when the header is read, before the body
is parsed (Client.request); with --lead the GPU switches to it meanwhile. Its queue (cede_queue.Queue) decides
which request runs next, in what batch, and which is refused at once. Without a daemon everything runs the same.
--model soft needs neither GPU nor PyTorch.

--drive starts clients.py against it, and passes on its output: for `cede bench`.
"""
import argparse
import faulthandler
import gc
import http.server
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import zlib

# For the source tree. Installed, Python finds cede, and programs is next to the parent of this folder.
sys.path += [str(pathlib.Path(__file__).resolve().parents[2] / d) for d in ("python", "bench/programs", "programs")]

import cede
import cede_queue
import models

CLASSES = {"latency": cede.LATENCY, "normal": cede.NORMAL, "batch": cede.BATCH}


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    p.add_argument("--models", default="high=latency,low=batch", help="name=class,...")
    p.add_argument("--model", choices=("bert", "soft", "softgpu"), default="bert",
                   help="soft: sleeps; softgpu: runs on cede's software GPU")
    p.add_argument("--port", type=int, default=0, help="on 127.0.0.1; 0: any free one, printed on standard error")
    p.add_argument("--deadline-ms", type=float, default=0, help="default of requests; 0: none")
    p.add_argument("--policy", choices=("fifo", "priority", "edf", "laxity"),
                   default=os.environ.get("CEDE_SERVING_POLICY", "priority"))
    p.add_argument("--admit", action="store_true", help="refuse at once requests that would be late")
    p.add_argument("--batch-max", type=int, default=8, help="requests per batch, for models of other classes than latency")
    p.add_argument("--rows-max", type=int, default=16, help="texts per run on the GPU")
    p.add_argument("--batch-wait-ms", type=float, default=2)
    p.add_argument("--lead", action="store_true", help="let the GPU switch to this program while a request is parsed")
    p.add_argument("--layers", type=int, default=24)
    p.add_argument("--width", type=int, default=1024)
    p.add_argument("--length", type=int, default=128, help="tokens; requests are padded to it")
    p.add_argument("--eager", action="store_true", help="no CUDA graphs")
    p.add_argument("--soft-ms", type=float, default=2, help="run time of a batch of --model soft, without its texts")
    p.add_argument("--soft-each-ms", type=float, default=0.5)
    p.add_argument("--drive", action="append", default=[], metavar="ARGS",
                   help="start clients.py with these arguments and end with it, e.g. MODEL,--rate,10")
    args = p.parse_args()
    try:
        args.classes = {name: CLASSES[c] for name, c in
                        (m.split("=") for m in args.models.split(","))}
    except (ValueError, KeyError):
        p.error("--models: name=latency, name=normal or name=batch, separated by commas")
    if not 1 <= args.batch_max <= cede_queue.BATCH_MAX:
        p.error(f"--batch-max: must be from 1 to {cede_queue.BATCH_MAX}")
    if not 0 <= args.port <= 65535:
        p.error("--port: 0 to 65535")
    if not (1 <= args.rows_max <= 1024 and 1 <= args.length <= 512 and args.layers >= 1 and
            args.width >= 64 and args.width % 64 == 0):
        p.error("--rows-max: 1 to 1024, --length: 1 to 512, --layers: from 1, --width: of 64s")
    return args


class Item:
    """One request on its way through the queue."""

    def __init__(self, rows, hint):
        self.rows, self.hint = rows, hint
        self.answer, self.error, self.over = None, None, threading.Event()


class Service:
    """The models, the queue before them, and the thread that runs them."""

    def __init__(self, args):
        self.names = list(args.classes)
        self.classes = args.classes
        highest = min(args.classes.values())
        self.client = cede.Client()
        try:
            self.client.set_class(highest)
        except OSError as e:
            print(f"class not set: {e.strerror}: start this with cede run, or as root",
                  file=sys.stderr)
        # One thread runs the models, so the other limits of a pool do not matter here.
        self.pool = cede.Pool(devices=1, gpu=args.model == "bert", target_utilization_percent=100)
        self.queue = cede_queue.Queue(pool=self.pool, policy=getattr(cede_queue, args.policy.upper()),
                                      admit=args.admit)
        self.models = []
        for i, name in enumerate(self.names):
            largest = 1 if self.classes[name] == cede.LATENCY else args.batch_max
            self.queue.set_model(i, largest, round(args.batch_wait_ms * 1e3), 10000)
            if args.model != "bert":
                kind = models.Soft if args.model == "soft" else models.SoftGpu
                self.models.append(kind(i, args.soft_ms, args.soft_each_ms))
            else:
                self.models.append(models.Bert(i, args.rows_max, args.length, args.layers, args.width,
                                               args.width // 64, graphs=not args.eager))
        for model in self.models:  # caches, clocks
            for _ in range(5):
                model.run([[1, 2, 3]], lambda: None)
        if args.lead and args.model == "bert":
            self.client.lead_cuda()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        for batch in self.queue.batches():
            def queued(items=batch.items):
                for item in items:
                    item.hint.queued()
            try:
                with batch.lease.torch():
                    rows = iter(self.models[batch.model].run([r for i in batch.items for r in i.rows],
                                                             queued))
                answers = [[next(rows) for _ in i.rows] for i in batch.items]
            except Exception as e:  # the clients get an error, and the next batch may work
                answers = [None] * len(batch.items)
                print(f"a batch of {self.names[batch.model]} failed: {e}", file=sys.stderr)
            for item, answer in zip(batch.items, answers):
                item.answer = answer
                item.over.set()

    def serve(self, name, read, deadline_us):
        """read(): the request's texts and deadline. Raises cede_queue.Refused and Closed."""
        with self.client.request(deadline_us=deadline_us) as hint:
            texts, deadline_us = read(deadline_us)
            item = Item([tokenize(t) for t in texts], hint)
            self.queue.submit(item, self.names.index(name), shape=len(texts),
                              cls=self.classes[name], deadline_us=deadline_us)
            item.over.wait()
        if item.answer is None:
            raise cede_queue.Closed
        return item.answer

    def close(self):
        self.queue.shutdown()
        for item in self.queue.reclaim():
            item.over.set()
        self.thread.join()
        self.queue.close()
        self.pool.close()
        self.client.close()


def tokenize(text):
    """In place of a tokenizer: a number for each word, the same each time."""
    return [101] + [1000 + zlib.crc32(w.encode()) % 29000 for w in text.split()] + [102]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # header and body in one packet
    disable_nagle_algorithm = True
    service, deadline_us = None, 0

    def log_message(self, *_):
        pass

    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path != "/statistics":
            return self.reply(404, {"error": "GET /statistics, or POST to a model"})
        s = self.service.queue.statistics()
        return self.reply(200, {name: getattr(s, name) for name, _ in s._fields_})

    def read(self, deadline_us):
        size = int(self.headers.get("Content-Length", 0))
        if not 0 < size <= 1 << 20:
            raise ValueError("a body of up to 1 MB is needed")
        value = json.loads(self.rfile.read(size))
        texts = value.get("texts") if isinstance(value, dict) else None
        if not isinstance(texts, list) or not 1 <= len(texts) <= 256 or \
                not all(isinstance(t, str) for t in texts):
            raise ValueError('the body must be {"texts": ["...", ...], "deadline_ms": 50}')
        ms = value.get("deadline_ms", deadline_us / 1e3)
        if not isinstance(ms, (int, float)) or not 0 <= ms <= 1e9:
            raise ValueError("deadline_ms: must be a number from 0")
        return texts, math.ceil(ms * 1e3)  # 0 is none

    def do_POST(self):
        name = self.path.strip("/")
        if name not in self.service.names:
            self.close_connection = True  # the body was not read
            return self.reply(404, {"error": "no such model", "models": self.service.names})
        try:
            return self.reply(200, {"model": name, "output":
                                    self.service.serve(name, self.read, self.deadline_us)})
        except cede_queue.Refused as e:
            return self.reply(503, {"error": str(e)})
        except cede_queue.Closed:
            return self.reply(503, {"error": "the server ends, or the model failed"})
        except ValueError as e:
            self.close_connection = True
            return self.reply(400, {"error": str(e)})


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def drive(port, lines):
    """clients.py for each."""
    clients = pathlib.Path(__file__).resolve().parent / "clients.py"
    return [subprocess.Popen([sys.executable, str(clients), f"http://127.0.0.1:{port}/",
                              "--parent", str(os.getpid()), *line.replace(",", " ").split()]) for line in lines]


def main():
    args = arguments()
    ended = threading.Event()
    children = []

    def on_signal(*_):
        faulthandler.dump_traceback_later(10)  # shows what blocks the end
        ended.set()
        for c in children:
            c.terminate()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    sys.setswitchinterval(5e-4)  # the longest that a parsing thread delays the one that launches
    try:
        server = Server(("127.0.0.1", args.port), Handler)
    except OSError as e:  # before there are threads, which would keep the program
        sys.exit(f"cannot listen on 127.0.0.1:{args.port} ({e.strerror}): choose another --port")
    service = Service(args)
    gc.collect()
    gc.freeze()  # what is loaded now stays: no need to scan it again
    Handler.service, Handler.deadline_us = service, round(args.deadline_ms * 1e3)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    print(f"listening on 127.0.0.1:{port}", file=sys.stderr, flush=True)
    status = 0
    if args.drive and not ended.is_set():
        children += drive(port, args.drive)
        if ended.is_set():  # the signal came before they were listed
            on_signal()
    # Never for long in one call: a signal that another thread got is answered when it returns. Not ended.wait(): the
    # signal's set() would wait for its lock.
    while not ended.is_set() and (not children or any(c.poll() is None for c in children)):
        time.sleep(0.1)
    for c in children:
        status |= c.wait() != 0
    server.shutdown()
    service.close()
    sys.stdout.flush()
    os._exit(status)  # threads with idle connections would keep the process alive


if __name__ == "__main__":
    main()
