"""`cede kube-agent` and ceded with pods that containerd runs, as a kubelet would ask it by CRI, and the software GPU. The
Pods API is a stand-in. Skips where containerd is not installed or may not run.

usage: test_kube_containerd.py CEDE [TEST...]"""
import os
import subprocess
import sys
import unittest

import cri

SKIP = 77


def enter():
    """Into namespaces of its own: /run/containerd is not that of the machine, and what runs here ends with this."""
    if cri.missing() or os.getuid() != 0:
        print("skipped: root is needed, and", ", ".join(cri.NEEDED))
        sys.exit(SKIP)
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*unshare, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        print("skipped: no namespaces can be made here")
        sys.exit(SKIP)
    os.execvp("unshare", [*unshare, sys.executable, *sys.argv, "--entered"])


if "--entered" not in sys.argv:
    enter()
sys.argv.remove("--entered")
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)

from stand_ins import CEDE, HIGH, LOW, WAIT_S, WithCeded, eventually, group, pod, uid  # pylint: disable=wrong-import-position

WORKER = "[rule worker]\nnamespace = other\npod = c-*\ncontainer_name = worker\nclass = batch\nweight = 20\n"


class Containers(WithCeded):
    def setUp(self):
        super().setUp()
        self.containerd = cri.Containerd(self.dir)
        self.addCleanup(self.containerd.stop)
        self.containerd.wait(WAIT_S)
        self.containerd.load_image()
        try:
            self.containerd.remove_pod(self.containerd.run_pod("try", "prod", "1", self.root + "/try"))
        except RuntimeError as e:
            self.skipTest(f"containerd runs no pods here: {e}")

    def run_program(self, p, container):
        """A GPU program in a container of that pod; the sandbox and the program's pid."""
        meta = p["metadata"]
        sandbox = self.containerd.run_pod(meta["name"], meta["namespace"], uid(p), self.root + group(p))
        self.addCleanup(self.containerd.remove_pod, sandbox)
        folders = "/usr", "/lib", "/lib64", os.path.dirname(CEDE), self.dir
        pid = self.containerd.start(sandbox, container, [CEDE, "load", "batch", "--device", "soft", "--memory", "100M"],
                                    {k: self.env[k] for k in ("CEDE_DIR", "CEDE_SOFT_SOCKET")},
                                    [f for f in folders if os.path.exists(f)])
        return sandbox, type("Program", (), {"pid": pid})

    def test_pods(self):
        """Two pods get their class by the agent, a third by what containerd wrote about its container."""
        self.begin_ceded(HIGH + LOW + WORKER)
        pods = pod("a", priority="high"), pod("b", notes={"cede.io/weight": "7"}), pod("c-1", namespace="other")
        programs = [self.run_program(p, "worker")[1] for p in pods]
        self.becomes(programs[2], **{"class": "batch", "weight": 20})
        for p, program in zip(pods[:2], programs):
            with open(f"/proc/{program.pid}/cgroup", encoding="utf8") as f:
                self.assertIn(f"{self.root}{group(p)}/", f.read())
            self.assertEqual(self.outcome(program)["by"], "nothing")
            self.api.change("ADDED", p)
        self.agent_of_root()
        self.becomes(programs[0], **{"class": "latency"})
        self.becomes(programs[1], **{"class": "batch", "weight": 7})
        # A pod that begins now.
        late = pod("late")
        self.api.change("ADDED", late)
        sandbox, program = self.run_program(late, "main")
        self.becomes(program, **{"class": "batch", "weight": 50})
        self.containerd.call("StopPodSandbox", cri.message((1, sandbox[0])))
        eventually(lambda: not self.job(program), "its job does not end")


if __name__ == "__main__":
    unittest.main(verbosity=2)
