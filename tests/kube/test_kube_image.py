"""The image of agents/kubernetes: built by buildah, without a registry, and its ceded and agent at work.

usage: test_kube_image.py CEDE INTEGRATION_DIR [TEST...]"""
import json
import os
import shutil
import signal
import subprocess
import sys
import unittest

if (not shutil.which("buildah") or os.getuid() != 0 or
        subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL, check=False).returncode):
    print("skipped: root is needed, buildah, and mount namespaces")
    sys.exit(77)

from stand_ins import CEDE, LOW, WAIT_S, WithCeded, eventually, group, pod  # pylint: disable=wrong-import-position

INTEGRATION = sys.argv.pop(1)


class Image(WithCeded):
    def buildah(self, *args):
        r = self.run_as(*self.buildah_command, *args)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r.stdout.strip()

    def setUp(self):
        super().setUp()
        self.buildah_command = ["buildah", "--root", self.path("images"), "--runroot", self.path("images-run"),
                                "--storage-driver", "vfs"]
        may = self.run_as(*self.buildah_command, "from", "scratch")
        if may.returncode:
            self.skipTest(f"buildah makes no containers here: {may.stdout}{may.stderr}")
        subprocess.run([os.path.join(INTEGRATION, "image-root"), CEDE, self.path("image")], check=True, timeout=WAIT_S)
        image = self.buildah("bud", "--isolation", "chroot", "-q", "-f", os.path.join(INTEGRATION, "Containerfile"),
                             self.path("image"))
        self.config = json.loads(self.buildah("inspect", "--type", "image", image))["OCIv1"]["config"]
        self.container = self.buildah("from", "-q", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000", image)
        self.addCleanup(self.buildah, "rm", self.container)

    def in_image(self, *args):
        """Its entry point with these arguments, on the host's network, as the DaemonSets' manifests call it."""
        env = [f"--env={k}={self.env[k]}" for k in ("CEDE_DIR", "CEDE_SOFT_SOCKET")]
        return [*self.buildah_command, "run", "--isolation", "chroot", "-v", f"{self.dir}:{self.dir}", *env,
                self.container, "--", *self.config["Entrypoint"], *args]

    def begin_in_image(self, *args):
        p = subprocess.Popen(self.in_image(*args), stdout=subprocess.DEVNULL, stderr=self.said, start_new_session=True)
        self.addCleanup(p.wait, WAIT_S)
        self.addCleanup(os.killpg, p.pid, signal.SIGTERM)

    def test_image(self):
        version = subprocess.run(self.in_image("--version"), text=True, stdout=subprocess.PIPE, check=True, timeout=WAIT_S)
        self.assertEqual(version.stdout, self.cede("--version").stdout)
        self.soft_gpu()
        self.write("conf", LOW)
        self.begin_in_image("daemon", "--config", self.path("conf"), "--device", "soft")
        eventually(lambda: "no daemon" not in self.cede("policy").stderr, f"no ceded: {self.words()}")
        p = pod("p")
        program = self.begin_program(group(p))
        self.api.change("ADDED", p)
        once = self.in_image(*self.command("--once", "--cgroup-root", self.root)[1:])
        subprocess.run(once, check=True, timeout=WAIT_S)
        self.becomes(program, **{"class": "batch", "weight": 50})


if __name__ == "__main__":
    unittest.main(verbosity=2)
