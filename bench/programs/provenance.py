"""What a result says of where it comes from: date, GPU, driver, kernel, command, the cede that was measured and its commit. Every
program that writes a result takes it from here."""
import datetime
import os
import platform
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def said(*argv):
    """What a command prints; "": it failed, or there is none."""
    try:
        return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def commit(version=""):
    """The commit in a version of cede, else CEDE_COMMIT, which a copy without git is told, else that of this tree. With -dirty if
    files differ from it."""
    m = re.search(r"[-.]g([0-9a-f]{7,})([-.+]dirty)?", version)
    if m:
        return m[1] + ("-dirty" if m[2] else "")
    return os.environ.get("CEDE_COMMIT") or said("git", "-C", HERE, "describe", "--always", "--dirty", "--exclude=*", "--abbrev=8")


def head(cede=None):
    """The fields that a result begins with. cede: the program that is measured, if it is one."""
    version = said(cede, "--version") if cede else ""
    gpu, _, driver = said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").split("\n")[0].partition(", ")
    name = os.path.basename(sys.argv[0])  # no folder: results name no directory of the machine
    o = {"date": datetime.date.today().isoformat(), "gpu": gpu, "driver": driver, "kernel": platform.release(),
         "command": " ".join([name, *(os.path.basename(a) for a in sys.argv[1:])]), "commit": commit(version)}
    return {**o, "cede": version} if version else o
