"""A containerd with its CRI as a kubelet speaks to it, in a directory: gRPC by curl, messages by hand."""
import hashlib
import io
import json
import os
import shutil
import struct
import subprocess
import tarfile
import tempfile
import time

NEEDED = "containerd", "ctr", "runc", "curl", "gcc"
PAUSE = "cede.test/pause:1"
STATE = "/run/containerd"  # where ceded looks for what containers are
NODE = 2                   # enum NamespaceMode: the network of the host, so no CNI is needed
PAUSE_C = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"


def missing():
    return [x for x in NEEDED if not shutil.which(x)]


def varint(i):
    out = b""
    while i > 127:
        out, i = out + bytes([i & 127 | 128]), i >> 7
    return out + bytes([i])


def message(*fields):
    """Of protobuf: pairs of a field's number and its value, a number, text or a message."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            value = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def parse(data):
    out, i = {}, 0

    def number():
        nonlocal i
        value = shift = 0
        while True:
            value |= (data[i] & 127) << shift
            shift, i = shift + 7, i + 1
            if data[i - 1] < 128:
                return value
    while i < len(data):
        key = number()
        value = n = number()
        if key & 7 == 2:
            value, i = data[i:i + n], i + n
        out.setdefault(key >> 3, []).append(value)
    return out


def write_image(path):
    """One that holds nothing but a program that waits, and folders for mounts."""
    with tempfile.TemporaryDirectory() as d:
        subprocess.run(["gcc", "-static", "-O1", "-xc", "-", "-o", d + "/pause"], input=PAUSE_C, text=True, check=True,
                       timeout=60)
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as t:
            t.add(d + "/pause", "pause")
    layer = layer.getvalue()
    config = json.dumps({"architecture": os.uname().machine.replace("x86_64", "amd64").replace("aarch64", "arm64"),
                         "os": "linux", "config": {"Entrypoint": ["/pause"]},
                         "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}})
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [PAUSE], "Layers": ["layer.tar"]}])
    with tarfile.open(path, "w") as t:
        for name, data in (("config.json", config.encode()), ("layer.tar", layer), ("manifest.json", manifest.encode())):
            about = tarfile.TarInfo(name)
            about.size = len(data)
            t.addfile(about, io.BytesIO(data))


class Containerd:
    def __init__(self, directory):
        self.dir, self.socket = directory, directory + "/containerd.sock"
        with open(directory + "/containerd.toml", "w", encoding="utf8") as f:
            f.write(f"""version = 2
root = "{directory}/root"
state = "{STATE}"
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
""")
        with open(directory + "/containerd.log", "w", encoding="utf8") as log:
            self.process = subprocess.Popen(["containerd", "-c", directory + "/containerd.toml"], stdout=log, stderr=log)

    def log(self):
        with open(self.dir + "/containerd.log", encoding="utf8") as f:
            return f.read()

    def stop(self):
        self.process.terminate()
        self.process.wait(60)

    def call(self, method, request=b""):
        p = subprocess.run(["curl", "-sS", "--http2-prior-knowledge", "--unix-socket", self.socket, "-D", "-",
                            "-H", "content-type: application/grpc", "-H", "te: trailers", "--data-binary", "@-",
                            "-o", self.dir + "/answer", "http://localhost/runtime.v1.RuntimeService/" + method],
                           input=b"\0" + struct.pack(">I", len(request)) + request, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, timeout=60, check=False)
        if p.returncode or b"grpc-status: 0" not in p.stdout:
            raise RuntimeError(f"{method}: {p.stdout.decode()}\n{self.log()}")
        with open(self.dir + "/answer", "rb") as f:
            return parse(f.read()[5:])

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while True:
            try:
                return self.call("Version")
            except RuntimeError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def load_image(self):
        write_image(self.dir + "/image.tar")
        subprocess.run(["ctr", "-a", self.socket, "-n", "k8s.io", "images", "import", "--snapshotter", "native",
                        self.dir + "/image.tar"], check=True, stdout=subprocess.DEVNULL, timeout=60)

    def run_pod(self, name, namespace, uid, cgroup):
        """Its sandbox, as what create() wants."""
        labels = [message((1, "io.kubernetes.pod." + k), (2, v))
                  for k, v in (("name", name), ("namespace", namespace), ("uid", uid))]
        config = message((1, message((1, name), (2, uid), (3, namespace))), (3, self.dir + "/logs"),
                         *((6, x) for x in labels),
                         (8, message((1, cgroup), (2, message((1, message((1, NODE))))))))
        return self.call("RunPodSandbox", message((1, config)))[1][0], config

    def start(self, sandbox, name, command, env, folders):
        """A container with a command, which sees these folders of the host. Its first process, as the host has it."""
        mounts = [message((1, folder), (2, os.path.realpath(folder))) for folder in folders]
        container = message((1, message((1, name))), (2, message((1, PAUSE))), *((3, c) for c in command),
                            *((6, message((1, k), (2, v))) for k, v in env.items()), *((7, m) for m in mounts))
        of = self.call("CreateContainer", message((1, sandbox[0]), (2, container), (3, sandbox[1])))[1][0]
        self.call("StartContainer", message((1, of)))
        status = self.call("ContainerStatus", message((1, of), (2, 1)))
        return json.loads(parse(status[2][0])[2][0])["pid"]

    def remove_pod(self, sandbox):
        self.call("StopPodSandbox", message((1, sandbox[0])))
        self.call("RemovePodSandbox", message((1, sandbox[0])))
