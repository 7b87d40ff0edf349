#!/usr/bin/env python3
"""`cede bench report` on the results that are checked in: each report is the one whose digest stands
in reports.sha256, so that no change of the bench makes old results unreadable, or other figures of
them. Where a report is meant to change, look at the difference, then write the digests anew:
tests/bench/test_reports.py build/src/cli/cede . --write"""
import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile

cede, top = sys.argv[1], pathlib.Path(sys.argv[2])
expected = top / "tests/bench/reports.sha256"
digests = {}
for folder in sorted({p.parent for p in (top / "bench/results").rglob("*.json")}):
    with tempfile.TemporaryDirectory() as tmp:
        for p in folder.glob("*.json"):
            shutil.copy(p, tmp)
        r = subprocess.run([cede, "bench", "report", tmp], capture_output=True, text=True, check=False)
        if r.returncode == 1 and "no results" in r.stderr:
            continue  # of other programs
        if r.returncode:
            sys.exit(f"{folder}: status {r.returncode}: {r.stderr}")
        report = (pathlib.Path(tmp) / "report.md").read_bytes()
    digests[str(folder.relative_to(top))] = hashlib.sha256(report).hexdigest()

text = "".join(f"{d}  {name}\n" for name, d in digests.items())
if "--write" in sys.argv:
    expected.write_text(text)
wrong = set(text.splitlines()) ^ set(expected.read_text().splitlines())
if wrong or not digests:
    sys.exit("reports differ from reports.sha256:\n" + "\n".join(sorted(wrong, key=lambda l: l[64:])))
