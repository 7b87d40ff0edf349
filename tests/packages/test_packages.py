"""What the packages are made of: versions and changelog from tags, completions, units, install.sh, the list of what is
linked. The packages themselves are built and installed by scripts/packages-test.

usage: test_packages.py CEDE SOURCE_DIR BUILD_DIR"""
import fnmatch
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, SOURCE, CEDE = sys.argv.pop(3), sys.argv.pop(2), sys.argv.pop(1)
VERBS = "run set yield acquire ps top trace acct metrics rules policy doctor demo bench daemon load softgpu".split()


def path(*words):
    return os.path.join(SOURCE, *words)


def run(*words, **kw):
    done = subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False, **kw)
    if done.returncode:
        raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}")
    return done.stdout


def needs(*programs):
    missing = [p for p in programs if not shutil.which(p)]
    return unittest.skipIf(missing, f"not installed: {' '.join(missing)}")


class Packages(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="cede-packages-")
        self.addCleanup(shutil.rmtree, self.dir)

    def repository(self):
        """A small one, with the scripts in it."""
        for name in ("scripts/version", "scripts/debian-changelog", "debian/control", "CHANGELOG.md"):
            os.makedirs(os.path.dirname(os.path.join(self.dir, name)), exist_ok=True)
            shutil.copy(path(name), os.path.join(self.dir, name))
        with open(os.path.join(self.dir, "meson.build"), "w", encoding="utf-8") as f:
            f.write("project('cede', 'c',\n  version: '0.2.0',\n")
        with open(os.path.join(self.dir, "CHANGELOG.md"), "w", encoding="utf-8") as f:
            f.write("# Changes\n\n## 0.3 (not yet released)\n\n**Next.** Text.\n\n## 0.2\n\n**Doors.** `cede` has.\n")
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "one")

    def git(self, *words):
        return run("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "tag.gpgSign=false", *words, cwd=self.dir)

    def version(self):
        return run(os.path.join(self.dir, "scripts/version")).strip()

    @needs("git", "dpkg-parsechangelog")
    def test_versions(self):
        self.repository()
        self.assertRegex(self.version(), r"^0\.2\.0\+git1\.g[0-9a-f]{7}$")
        self.git("tag", "v0.2.0")
        self.assertEqual(self.version(), "0.2.0")
        self.changelog("0.2.0", "Doors", 1)
        self.git("commit", "-q", "--allow-empty", "-m", "two")
        self.assertRegex(self.version(), r"^0\.2\.0\+git1\.g[0-9a-f]{7}$")
        text = self.changelog(self.version(), "Next", 2)
        self.assertEqual(text, self.changelog(self.version(), "Next", 2))
        with open(os.path.join(self.dir, "meson.build"), "a", encoding="utf-8") as f:
            f.write("# changed\n")
        self.assertRegex(self.version(), r"\.dirty$")
        self.git("tag", "v0.9.0")
        with self.assertRaisesRegex(AssertionError, "tag again"):
            self.version()

    @needs("git", "dpkg-parsechangelog")
    def test_clones_without_tags(self):
        """A clone without tags, a shallow one and one without git have a version and a changelog too."""
        self.repository()
        self.git("tag", "v0.2.0")
        self.git("commit", "-q", "--allow-empty", "-m", "two")
        whole = self.dir
        for name, options in (("untagged", ["--no-tags"]), ("shallow", ["--no-tags", "--depth=1"]), ("plain", ["--depth=1"])):
            self.dir = os.path.join(whole, name)
            run("git", "clone", "-q", *options, "file://" + whole, self.dir)
            if name == "plain":
                shutil.rmtree(os.path.join(self.dir, ".git"))
                self.changelog("0.2.0", "Doors", 1)
                self.changelog("0.2.0", "Doors", 1, env={"PATH": self.programs("sh", "sed", "dirname", "python3")})
                continue
            self.assertRegex(self.version(), r"^0\.2\.0\+git[0-9]+\.g[0-9a-f]{7}$")
            self.changelog(self.version(), "Next", 1)
            self.git("fetch", "-q", "--tags", "--unshallow" if name == "shallow" else "origin")
            self.assertRegex(self.version(), r"^0\.2\.0\+git1\.g[0-9a-f]{7}$")
        self.dir = whole

    def programs(self, *names):
        """A directory with these and no others: git is not installed."""
        where = tempfile.mkdtemp(dir=self.dir)
        for name in names:
            os.symlink(shutil.which(name), os.path.join(where, name))
        return where

    def changelog(self, version, headline, entries, **kw):
        text = run(os.path.join(self.dir, "scripts/debian-changelog"), **kw)
        with open(os.path.join(self.dir, "debian/changelog"), "w", encoding="utf-8") as f:
            f.write(text)
        said = run("dpkg-parsechangelog", "--all", "-l", os.path.join(self.dir, "debian/changelog"))
        self.assertIn(f"Version: {version}\n", said)
        self.assertEqual(text.splitlines()[2], f"  * {headline}")
        self.assertEqual(text.count("\n -- "), entries)
        self.assertNotIn("warning", said)
        return text

    def installed(self):
        """What the packages' build installs, by the paths in them; debian/rules moves and removes some of it."""
        what = {w: json.loads(run("meson", "introspect", BUILD, "--" + w)) for w in ("installed", "buildoptions")}
        prefix, libdir = (next(o["value"] for o in what["buildoptions"] if o["name"] == n) for n in ("prefix", "libdir"))
        files = {"usr/" + os.path.relpath(f, prefix) for f in what["installed"].values()}
        files = {re.sub(f"^usr/{libdir}/(?=lib|cede/|pkgconfig/|slurm-wlm/)", "usr/lib/multiarch/", f) for f in files}
        files = {f.replace("share/zsh/site-functions", "share/zsh/vendor-completions") for f in files}
        # The programs of benchmarks are of the build with tests; a library for development is named by its link.
        return {f for f in files if not f.startswith("usr/share/doc/") and f != "usr/bin/cede-bench"}

    @needs("meson")
    def test_each_file_is_in_one_package(self):
        """As dh_install and dh_missing would find it, without building the packages."""
        with open(path("debian/control"), encoding="utf-8") as f:
            packages = set(re.findall(r"^Package: (\S+)", f.read(), re.M))
        self.assertEqual(packages, {os.path.basename(f).rsplit(".", 1)[0] for f in glob.glob(path("debian/*.install")) +
                                    glob.glob(path("debian/*.docs"))})
        files, owners = self.installed(), {}
        slurm = any("slurm-wlm" in f for f in files)
        for package in packages:
            for line in self.lines(package, "install"):
                pattern, *to = line.split()
                if to and not pattern.startswith("usr/"):
                    self.assertTrue(glob.glob(path(pattern)), line)  # of the source
                elif pattern == "etc/cede/cede.conf":
                    self.assertTrue(os.path.exists(path("data/cede.conf")))  # made by debian/rules
                else:
                    found = [f for f in files if fnmatch.fnmatch(f, pattern) or fnmatch.fnmatch(f, pattern + "/*")]
                    self.assertTrue(found or (package == "cede-slurm" and not slurm), f"{package}: nothing is {pattern}")
                    for f in found:
                        owners.setdefault(f, set()).add(package)
            for kind in ("docs", "examples"):
                for line in self.lines(package, kind):
                    self.assertTrue(glob.glob(path(line)), f"{package}.{kind}: {line}")
        self.assertEqual({f for f in files if len(owners.get(f, ())) != 1}, set())

    def test_links_of_pages_are_in_the_package(self):
        """The pages lie in cede-doc as in the tree, and so does all that they link to."""
        there = {os.path.relpath(line.split()[1], "usr/share/doc/cede") for line in self.lines("cede-doc", "links")}
        for kind in ("docs", "examples", "install"):
            for line in self.lines("cede-doc", kind):
                pattern, *to = line.split()
                where = os.path.relpath(to[0], "usr/share/doc/cede") if to else "examples" if kind == "examples" else "."
                for f in glob.glob(path(pattern)):
                    there.add(os.path.normpath(os.path.join(where, os.path.basename(f))))
        missing, links = set(), 0
        for page in sorted(f for f in there if f.endswith(".md")):
            with open(path(page), encoding="utf-8") as f:
                for link in re.findall(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", f.read()):
                    links += 1
                    target = os.path.normpath(os.path.join(os.path.dirname(page), link))
                    self.assertTrue(os.path.exists(path(target)), f"{page}: {link}")
                    if not any(target == t or target.startswith(t + "/") for t in there | {"examples"}):
                        missing.add(target)
        self.assertEqual(missing, set())
        self.assertGreater(links, 100)

    @staticmethod
    def lines(package, kind):
        name = path("debian", f"{package}.{kind}")
        if not os.path.exists(name):
            return []
        with open(name, encoding="utf-8") as f:
            return [line for line in f.read().splitlines() if line]

    @needs("zsh")
    def test_zsh(self):
        env = {"PATH": f"{os.path.dirname(CEDE)}:/usr/bin:/bin", "HOME": self.dir, "CEDE_DIR": self.dir}

        def offered(*words):
            return run("zsh", "-f", path("tests/packages/completion.zsh"), path("data/zsh-completion/_cede"), *words, env=env).split()
        self.assertLessEqual(set(VERBS), set(offered("cede", "")))
        for verb in VERBS:
            wanted = set(re.findall(r"^ +(?:-\w, )?(--[a-z][\w-]*)", run(CEDE, "help", verb), re.M))
            self.assertLessEqual(wanted, set(offered("cede", verb, "-")), verb)
        self.assertIn("--socket-soft", offered("ceded", "-"))
        self.assertEqual(offered("cede", "run", "-c", ""), ["latency", "normal", "batch"])
        self.assertEqual(offered("cede", "run", "-c", "batch", "--", "python3", "x"), ["<normal>", "x"])
        self.assertEqual(offered("cede", "rules", ""), ["test"])
        self.assertIn("laxity", offered("cede", "policy", ""))

    def test_bash(self):
        run("bash", "-n", path("data/bash-completion/cede"))

    @needs("systemd-analyze")
    def test_units(self):
        for name in ("ceded", "cede-metrics"):
            unit = os.path.join(self.dir, name + ".service")
            with open(path("data", name + ".service.in"), encoding="utf-8") as f, open(unit, "w", encoding="utf-8") as g:
                g.write(f.read().replace("@bindir@", "/usr/bin"))
            if "--threshold" not in run("systemd-analyze", "--help") or "--offline" not in run("systemd-analyze", "--help"):
                self.skipTest("systemd-analyze is too old")
            run("systemd-analyze", "security", "--offline=yes", "--threshold=25", unit)

    @needs("apparmor_parser")
    def test_apparmor(self):
        run("apparmor_parser", "--skip-kernel-load", "--skip-cache", path("data/apparmor/ceded"))

    def test_install(self):
        """install.sh puts everything below DESTDIR and PREFIX, and takes away what it put there and nothing else."""
        tar, dest = os.path.join(self.dir, "tar"), os.path.join(self.dir, "dest")
        unit = os.path.join(tar, "root/lib/systemd/system/ceded.service")
        os.makedirs(os.path.dirname(unit))
        os.makedirs(os.path.join(tar, "root/bin"))
        shutil.copy(path("data/install.sh"), tar)
        shutil.copy(CEDE, os.path.join(tar, "root/bin/cede"))
        os.symlink("cede", os.path.join(tar, "root/bin/ceded"))
        with open(unit, "w", encoding="ascii") as f:
            f.write("ExecStart=/usr/local/bin/ceded\n")
        for folder in "opt/x/bin", "opt/x/lib":
            os.makedirs(os.path.join(dest, folder))
        other = os.path.join(dest, "opt/x/bin/other")
        open(other, "w", encoding="ascii").close()
        env = dict(os.environ, DESTDIR=dest, PREFIX="/opt/x")
        run(os.path.join(tar, "install.sh"), env=env)
        os.remove(os.path.join(tar, "root/bin/ceded"))  # the next version has none: it is removed
        run(os.path.join(tar, "install.sh"), env=env)
        found = {os.path.relpath(os.path.join(d, f), dest) for d, _, names in os.walk(dest) for f in names}
        self.assertEqual(found, {"opt/x/bin/cede", "opt/x/bin/other", "opt/x/lib/systemd/system/ceded.service",
                                 "opt/x/share/cede/MANIFEST"})
        with open(os.path.join(dest, "opt/x/lib/systemd/system/ceded.service"), encoding="ascii") as f:
            self.assertEqual(f.read(), "ExecStart=/opt/x/bin/ceded\n")
        run(os.path.join(tar, "install.sh"), "--uninstall", env=env)
        found = [os.path.join(d, f) for d, folders, names in os.walk(os.path.join(dest, "opt/x")) for f in folders + names]
        self.assertEqual(sorted(found), [os.path.join(dest, "opt/x/bin"), other, os.path.join(dest, "opt/x/lib")])
        with self.assertRaisesRegex(AssertionError, "set PREFIX if it was another"):
            run(os.path.join(tar, "install.sh"), "--uninstall", env=env)

    @needs("dpkg-query", "ninja")
    def test_spdx(self):
        document = json.loads(subprocess.run([path("scripts/spdx"), BUILD, "--release", "1.0"], check=True, text=True,
                                             stdout=subprocess.PIPE, timeout=120).stdout)
        names = [p["name"] for p in document["packages"]]
        self.assertIn("libc6-dev", names)  # the start files; this build shares all libraries
        self.assertNotIn("libuv1-dev", names)
        ids = {p["SPDXID"] for p in document["packages"]} | {"SPDXRef-DOCUMENT"}
        for r in document["relationships"]:
            self.assertLessEqual({r["spdxElementId"], r["relatedSpdxElement"]}, ids)


if __name__ == "__main__":
    unittest.main()
