"""Ceilings and defaults by QOS, which Slurm has with accounting only: slurmdbd and a MariaDB server, both of this test,
on loopback and in a directory of its own. Not in `make check`: meson test -C build --benchmark slurm_qos

usage: as test_slurm.py"""
import os
import subprocess

from test_slurm import Cluster, OnCluster, eventually, free_ports, main

LIMITS = ("default=none max=normal max_weight=200 max:qos:high=latency max_weight:qos:high=300 "
          "default:qos:night=batch max:qos:night=batch max:partition:prod=latency")
ACCOUNTING = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={slurmdbd}
AccountingStoragePass={dir}/munge
AccountingStorageEnforce=associations,qos,limits
"""
SLURMDBD = """AuthType=auth/munge
AuthInfo=socket={dir}/munge
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={slurmdbd}
SlurmUser=root
PidFile={dir}/slurmdbd.pid
LogFile={dir}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={sql}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
"""


class Accounted(Cluster):
    def __init__(self):
        slurmdbd, self.sql = free_ports(2)
        super().__init__(ACCOUNTING.replace("{slurmdbd}", str(slurmdbd)), LIMITS)
        with open(os.open(self.path("slurmdbd.conf"), os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf8") as f:
            f.write(SLURMDBD.format(dir=self.dir, slurmdbd=slurmdbd, sql=self.sql))
        self.lua("{high = \"latency\"}")

    def lua(self, ceilings):
        with open(self.path("job_submit.lua"), encoding="utf8") as f:
            text = f.read()
        with open(self.path("job_submit.lua"), "w", encoding="utf8") as f:
            f.write(text.replace("qos = {}", "qos = " + ceilings))

    def begin_database(self):
        data, sock = self.path("sql"), self.path("sql.socket")
        subprocess.run(["mariadb-install-db", "--no-defaults", "--user=root", "--skip-test-db", "--datadir=" + data,
                        "--auth-root-authentication-method=socket"], check=True, timeout=300,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.start("mariadbd", "--no-defaults", "--user=root", "--datadir=" + data, "--socket=" + sock,
                   "--pid-file=" + self.path("sql.pid"), "--bind-address=127.0.0.1", f"--port={self.sql}",
                   "--innodb-buffer-pool-size=64M")
        make = "create database slurm_acct_db; create user slurm@'%' identified by 'slurm'; grant all on slurm_acct_db.* to slurm@'%'"
        eventually(lambda: self.call("mariadb", "--no-defaults", "-S", sock, "-e", make).returncode == 0,
                   lambda: "no database\n" + self.text("mariadbd.out")[-3000:])

    def begin(self):
        self.begin_munge()
        self.begin_database()
        self.start("slurmdbd", "-D")
        # slurmdbd makes the account root, with the user root, by itself.
        for words in ("add cluster cede", "add qos high,night", "modify user root set QosLevel+=high,night"):
            last = []

            def done(args=words.split(), last=last):
                last[:] = [self.call("sacctmgr", "-i", *args)]
                return last[0].returncode == 0
            eventually(done, lambda: f"{last}\n" + self.text("slurmdbd.out") + self.text("slurmdbd.log")[-3000:])
        self.begin_slurm()


class Qos(OnCluster):
    @classmethod
    def cluster(cls):
        return Accounted()

    def test_ceilings(self):
        """What slurmctld says is a job's QOS decides, on the node; QOS counts before the partition."""
        self.ceded()
        number = self.sbatch("--qos=high", "--gpu-class=latency", "--gpu-weight=300", script="sleep 1000")
        job = self.job(number)
        self.assertEqual((job["class"], job["weight"]), ("latency", 300))
        self.cancel(number)
        self.refused("--gpu-weight=300 is not allowed in partition debug: at most 200 is; it is allowed in qos high",
                     "srun", "--gpu-weight=300", "true")
        self.refused("--gpu-weight=301 is not allowed: at most 300 is", "srun", "--qos=high", "--gpu-weight=301", "true")
        self.refused("--gpu-class=normal is not allowed in partition prod: batch is",
                     "srun", "-p", "prod", "--qos=night", "--gpu-weight=1", "--gpu-class=normal", "true")

    def test_node_decides(self):
        """A user's side with other limits, and an environment that says another QOS, change nothing."""
        self.ceded()
        lie = {"SLURM_CONF": self.c.path("lax.conf"), "SLURM_JOB_QOS": "high"}
        got = self.srun("--gpu-weight=300", "touch", self.c.path("ran"), env=lie)
        self.assertEqual(got.returncode, 1)
        self.assertIn("slurmstepd-n1: error: cede: --gpu-weight=300 is not allowed in partition debug", got.stderr)
        self.assertFalse(os.path.exists(self.c.path("ran")))

    def test_default(self):
        self.ceded()
        number = self.sbatch("--qos=night", script="sleep 1000")
        self.assertEqual(self.job(number)["class"], "batch")
        self.cancel(number)
        got = self.srun("--qos=high", "echo", "ran")
        self.assertEqual((got.returncode, got.stdout), (0, "ran\n"), got.stderr)
        self.assertEqual(self.jobs(), [])

    def test_submission(self):
        """job_submit.lua has the QOS that a user names."""
        told = "--gpu-class=latency is not allowed in partition debug: at most normal is"
        self.refused(told, "sbatch", "--gpu-class=latency", "--wrap=true")
        self.refused(told, "sbatch", "--qos=night", "--gpu-class=latency", "--wrap=true")
        number = self.sbatch("--qos=high", "--gpu-class=latency", script="true\n")
        eventually(lambda: not self.c.call("squeue", "-h", "-j", str(number)).stdout, "it does not end")
        self.refused("Invalid qos specification", "sbatch", "--qos=none", "--wrap=true")


if __name__ == "__main__":
    main("slurmdbd", "sacctmgr", "mariadbd", "mariadb-install-db", "mariadb")
