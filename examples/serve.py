"""A server in Python: POST /v1/model, with its deadline in the header Deadline-Ms. What would be late gets 503 at once. The
rest runs in batches, several at a time, each with a stream, room in memory and the CUDA graphs of its lane: serving.md."""
import http.server
import json
import math
import signal
import sys
import threading
import time
import weakref
sys.path.append(sys.path[0] + "/../python")  # for the source tree
import cede
import cede_graph
import cede_memory
import cede_queue
import cede_scope
import serve_model


class Handler(http.server.BaseHTTPRequestHandler):
    """A connection, in a thread; and its request, which is what the queue has."""
    protocol_version, wbufsize, disable_nagle_algorithm, log_message = "HTTP/1.1", -1, True, lambda *_: None
    error_message_format = '{"error": "%(message)s"}'
    open = weakref.WeakSet()  # those whose clients wait

    def do_POST(self):
        self.open.add(self)
        if ended.is_set():  # the interpreter may be about to end: no further call, and no further request
            self.send_error(503)
            return self.open.discard(self)
        self.answered, ms = threading.Event(), self.headers.get("Deadline-Ms")
        try:
            self.text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if ms and float(ms) <= 0:
                raise cede_queue.Refused(cede_queue.ALONE)
            queue.submit(self, deadline_us=0 if ms is None else math.ceil(1000 * float(ms)))
        except (cede_queue.Refused, cede.Closed) as why:
            self.answer(503, {"error": str(why)})
        except (ValueError, OverflowError) as why:  # of a header
            self.close_connection = True
            self.answer(400, {"error": str(why)})
        self.answered.wait()
        self.send_response(self.status if self.path == "/v1/model" else 404)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)
        self.wfile.flush()
        self.open.discard(self)

    def answer(self, status, value):
        self.status, self.body = status, json.dumps(value).encode()
        self.answered.set()


def run():
    """A task of the scope: runs batches until the queue is shut down. An exception cancels the scope."""
    for batch in queue.batches():
        lane, answers = lanes[batch.lane], [(500, {"error": "the model failed"})] * len(batch.items)
        try:
            lane.write([request.text for request in batch.items])
            with batch.lease.torch():  # waits for the batch at its end
                graphs[batch.lane].launch(batch.lease.stream, len(batch.items))
            answers = [(200, {"output": [[number]]}) for number in lane.read(len(batch.items))]
        finally:
            for request, answer in zip(batch.items, answers):
                request.answer(*answer)


LANES = 3  # batches at a time
http.server.ThreadingHTTPServer.request_queue_size = 1024
port = sys.argv[1] if sys.argv[1:] else "8000"
if not port.isdecimal() or int(port) > 65535:
    print(f"the port is {port}: give 0 to 65535", file=sys.stderr)
    sys.exit(2)
try:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
except OSError as e:
    sys.exit(f"127.0.0.1:{port}: {e.strerror}")
ended, client, pool, memory = threading.Event(), cede.Client(), cede.Pool(), cede_memory.Memory(total_bytes=1 << 30)
pool.occupancy("model", serve_model.OCCUPANCY)
queue = cede_queue.Queue(client, pool, [memory], admit=1, batches=LANES, batch_max=serve_model.BATCH, batch_wait_us=2000)
queue.set_lease(0, "model", memory_bytes=serve_model.BYTES)
lanes = [serve_model.Lane() for _ in range(LANES)]
graphs = [cede_graph.Cache(lane.step, max_batch=serve_model.BATCH, gpu=serve_model.GPU) for lane in lanes]
signal.signal(signal.SIGTERM, lambda *_: ended.set())
with cede_scope.Scope(LANES) as scope:  # its end raises what a task raised
    for i in range(LANES):
        graphs[i].prepare(lanes[i].stream)
        scope.fork(run)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"listening on 127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
    while not ended.is_set() and not scope.cancelled():  # wait() has a lock that the signal's set() would wait for
        time.sleep(0.05)
    queue.shutdown()
    for request in queue.reclaim():
        request.answer(503, {"error": "the server ends"})
while Handler.open:  # answers are being sent
    time.sleep(0.001)
