"""The software GPU's client side, for programs that have no GPU: what src/gpu/soft/client.c is in C. The
messages are those of src/gpu/soft/proto.h, of the same release. Not for use by several threads."""
import os
import socket
import struct

VERSION = 0x73670009
OPEN_CONTEXT, REPLY, SUBMIT, COMPLETION, ALLOC = 1, 3, 4, 5, 9


def path():
    directory = os.environ.get("XDG_RUNTIME_DIR")
    return os.environ.get("CEDE_SOFT_SOCKET") or (
        f"{directory}/cede-softgpu" if directory else f"/tmp/cede-softgpu-{os.geteuid()}/socket")


def mps_server():
    """Of the server whose client this program is: device and inode of its directory, or 0 and 0."""
    directory = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
    if not directory or not os.path.isdir(directory):
        return 0, 0
    status = os.stat(directory)
    return status.st_dev, status.st_ino


class Context:
    def __init__(self):
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.s.connect(path())
        self.s.send(struct.pack("=IIIIQQQII", VERSION, OPEN_CONTEXT, 0, 0, 0, *mps_server(), 0, 0))
        result = self._receive(REPLY, "=iI")[0]
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        self.sent = 0

    def _receive(self, kind, form):
        text = self.s.recv(4096)
        if len(text) != 8 + struct.calcsize(form) or struct.unpack_from("=II", text) != (VERSION, kind):
            raise OSError("the software GPU has gone, or is of another release")
        return struct.unpack_from(form, text, 8)

    def alloc(self, size):
        """Takes so many bytes more of the GPU's memory."""
        self.s.send(struct.pack("=IIq", VERSION, ALLOC, size))
        result = self._receive(REPLY, "=iI")[0]
        if result < 0:
            raise OSError(-result, os.strerror(-result))

    def launch(self, kernels, each_ns):
        """So many, one after the other, each of which fills the GPU."""
        for _ in range(kernels):
            self.s.send(struct.pack("=IIQIIfIQ", VERSION, SUBMIT, self.sent, 0, each_ns, 1.0, 0, 0))
            self.sent += 1

    def wait(self, kernels):
        """Until that many have ended; the time at which the last did, in ns of the monotonic clock."""
        end_ns = 0
        for _ in range(kernels):
            end_ns = self._receive(COMPLETION, "=QQQQ")[3]
        return end_ns
