"""The words agree: what --help says, the manual pages, the completion, the configuration's page and
example, the headers. Nothing here looks at what the programs do with an option.

usage: test_words.py CEDE SOURCE_DIR"""
import functools
import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

CEDE, SOURCE = sys.argv.pop(1), sys.argv.pop(1)
VERBS = "run set detach kill pause resume swap swap-out swap-in yield acquire ps status top why trace acct metrics rules policy kube-agent advise doctor demo".split()
PAGES = {"bench": "cede-bench.1", "load": "cede-load.1", "softgpu": "cede-softgpu.1",
         "daemon": "ceded.8"}
NO_MATTER = {"--help", "--version", "--epochs"}  # of an example


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf8") as f:
        return f.read()


def run(*args, **kw):
    return subprocess.run(args, text=True, check=True, stdout=subprocess.PIPE, timeout=60, **kw).stdout


def options_of(verb):
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", run(CEDE, "help", verb))) - NO_MATTER


def options_on(page):
    text = re.findall(r"^\.(?:It|Op|Fl|Nm)?.*", read("man", page), re.M)
    return {"-" + o for line in text for o in re.findall(r"(?:Fl|,) (-[a-z][\w-]*)", line)} - NO_MATTER


def section(page, title):
    """Of a manual page, from its heading to the next."""
    return re.split(r"^\.S[hs] .*\n", re.split(rf"^\.S[hs] {re.escape(title)}\n", page, 1, re.M)[1], 1, re.M)[0]


def fields_on(page, title):
    """The fields that a section describes."""
    lines = re.findall(r"^\.It Va (.*)", section(page, title), re.M)
    return {f for line in lines for f in line.split(" , ")}


def function(path, name):
    body = re.search(rf"^[\w ]+[ *]{name}\([^;{{]*\)\n{{\n(.*?)^}}", read("src", path), re.M | re.S)
    assert body, f"{path} has no function {name}"
    return body[1]


def split_arguments(text):
    """Of a call, from behind its opening parenthesis: at the commas that are its own."""
    parts, depth, part = [], 0, ""
    for token in re.findall(r'"(?:[^"\\]|\\.)*"|.', text, re.S):
        if depth == 0 and token in ",)":
            parts.append(part.strip())
            part = ""
            if token == ")":
                break
            continue
        depth += (token in "([{") - (token in ")]}")
        part += token
    return parts


def packed(path, name):
    """The keys of the JSON objects that a function of src/ makes. Formats must be flat."""
    body, keys = function(path, name), set()
    for m in re.finditer(r"json_pack\(", body):
        form, *arguments = split_arguments(body[m.end():])
        form = "".join(re.findall(r'"([^"]*)"', form))
        assert re.fullmatch(r"\{[^{\[]*\}", form) and form.count(":") * 2 == len(
            re.findall(r"[a-zA-Z]", form)), f"{path}, {name}(): {form}"
        width = [1 if kind != "n" else 0 for kind in re.findall(r":([a-zA-Z])", form)]
        for w in width:
            keys.add(arguments.pop(0).strip('"'))
            del arguments[:w]
        assert not arguments, f"{path}, {name}(): {arguments}"
    keys |= set(re.findall(r'json_object_set(?:_new)?\([^,]*, "(\w+)"', body))
    assert keys, f"{path}, {name}() makes no object"
    return keys


def rows(path, name):
    """The first words of the rows of a table in src/; a row without a name counts for others."""
    table = re.search(rf"{name}\[\w*\] = {{\n(.*?)^}};", read("src", path), re.M | re.S)
    assert table, f"{path} has no table {name}"
    return set(re.findall(r'^    {"(\w+)"', table[1], re.M))


def packed_words(path, name):
    return set(re.findall(r'"([^"]+)"', function(path, name)))


def listed(path, table):
    return set(re.findall(r'"([^"]+)"', re.search(rf"\b{table}\[\] = {{(.*?)}};", read("src", path), re.S)[1]))


class Words(unittest.TestCase):
    def test_options(self):
        self.assertEqual(set.union(*map(options_of, VERBS)), options_on("cede.1"))
        for verb, page in PAGES.items():
            self.assertEqual(options_of(verb), options_on(page), page)

    def test_completion(self):
        script = "source %s; COMP_WORDS=(cede %s -); COMP_CWORD=%d; _cede; echo ${COMPREPLY[*]}"
        for verb in VERBS + list(PAGES):
            offered = set()
            for words in [verb] + [f"bench {w}" for w in ("list", "run", "report")] * (verb == "bench"):
                offered |= set(run("bash", "-c", script % (
                    os.path.join(SOURCE, "data/bash-completion/cede"), words,
                    len(words.split()) + 1), env={"PATH": "/usr/bin:/bin"}).split())
            self.assertLessEqual(options_of(verb), offered, verb)

    def test_configuration(self):
        """Keys, ranges and defaults of [policy] are the daemon's, on the page and in the example."""
        page = read("man", "cede.conf.5").split(".Ss Section policy")[1].split(".Ss Sections rule")[0]
        told = {}
        for key, text in re.findall(r"^\.It Cm (\w+)\n((?:(?!\.It).*\n)*)", page, re.M):
            default = re.search(r"Default: ([\d.]*\d)", text) or \
                re.search(r"(?:^|: )([\d.]+)(?:, the default:|\s\(default)", text, re.M)
            told[key] = default and float(default[1])
            said = subprocess.run([CEDE, "policy", key + "=x"], text=True, timeout=60, check=False,
                                  stderr=subprocess.PIPE).stderr
            plain = re.sub(r"\s+", " ", re.sub(r"\n\.Cm (\w+)(?: [.,])?", r" \1", text))
            allowed = re.search(r"Range: ((?:0, or )?[\w.]+ (?:to|or) [\w.]*\w)", plain)
            if key != "name":
                self.assertIn(f"{key}: 'x' is not a number: {allowed[1]} is allowed\n", said)
        self.assertIsNone(told.pop("name"))
        with tempfile.TemporaryDirectory() as d:
            conf = os.path.join(d, "conf")
            example = re.sub(r"^#(?=\w+ = |\[)", "", read("data", "cede.conf"), flags=re.M)
            with open(conf, "w", encoding="utf8") as f:
                f.write(re.sub(r"^group = .*\n", "", example, flags=re.M))
            env = dict(os.environ, CEDE_DIR=d)
            daemon = subprocess.Popen([CEDE, "daemon", "--config", conf, "--device", "gate"], env=env,
                                      stderr=subprocess.DEVNULL)
            try:
                while not os.path.exists(os.path.join(d, "socket")) and daemon.poll() is None:
                    time.sleep(0.01)
                policy = json.loads(run(CEDE, "policy", "--json", env=env))
                listed = run(CEDE, "policy", env=env)
                ps = json.loads(run(CEDE, "run", "-c", "batch", "--", CEDE, "ps", "--json", env=env))
            finally:
                daemon.terminate()
                daemon.wait()
            self.check_accounts(env)
        self.assertEqual(told, policy["params"])
        for key in told:
            self.assertRegex(listed, rf"(?m)^  {key}=[\d.]+ +[a-z\d].{{15,55}}$")
        self.assertEqual(policy["policy"], "laxity")
        self.assertEqual(len(ps["jobs"]), 1)
        json_page = read("man", "cede-json.5")
        told = fields_on(json_page, "CEDE POLICY")
        self.assertEqual(told, {"policy", "policies", "params", "decisions", "controls", "controls_failed"})
        self.assertEqual(told, set(policy))
        for policy_object in policy["policies"]:
            self.assertEqual(set(policy_object), {"name", "summary"})
        self.assertLessEqual(set(ps), fields_on(json_page, "The object"))
        self.assertLessEqual(set(ps["jobs"][0]), fields_on(json_page, "A job"))

    def test_rules_on_pages(self):
        """The daemon reads the rules that docs show, as they stand there."""
        pages = [n for n in sorted(os.listdir(os.path.join(SOURCE, "docs"))) if n.endswith(".md") and "    [rule " in read("docs", n)]
        self.assertGreaterEqual(len(pages), 4)
        for page in pages:
            rules = re.findall(r"^    \[rule .*\n(?:    [\w:.]+ = .*\n)+", read("docs", page), re.M)
            with tempfile.TemporaryDirectory() as d:
                conf = os.path.join(d, "conf")
                with open(conf, "w", encoding="utf8") as f:
                    f.write(re.sub("^    ", "", "".join(rules), flags=re.M))
                daemon = subprocess.Popen([CEDE, "daemon", "--config", conf, "--device", "gate"], text=True,
                                          env=dict(os.environ, CEDE_DIR=d), stderr=subprocess.PIPE)
                while not os.path.exists(os.path.join(d, "socket")) and daemon.poll() is None:
                    time.sleep(0.01)
                ended = daemon.poll()
                daemon.terminate()
                said = daemon.communicate(timeout=60)[1]
                self.assertIsNone(ended, f"{page}: {said}")

    def check_accounts(self, env):
        """Of a daemon that has ended: the fields are those of cede-json(5)."""
        page, acct = read("man", "cede-json.5"), {}
        for by in ((), ("--sum-by", "class"), ("--sum-by", "none")):
            done = subprocess.run([CEDE, "acct", "--json", *by], text=True, timeout=60, env=env, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if "built without SQLite" in done.stderr:
                return
            self.assertEqual(done.returncode, 0, done.stderr)
            acct |= json.loads(done.stdout)
        self.assertEqual(set(acct), fields_on(page, "CEDE ACCT"))
        self.assertEqual(set(acct["jobs"][0]) | {"jobs"}, fields_on(page, "Sums"))
        self.assertEqual(set(acct["jobs"][0]), set(acct["rows"][0]))
        self.assertLessEqual(set(acct["sums"][0]), fields_on(page, "Sums"))
        self.assertEqual(acct["jobs"][0]["gpu_s"], acct["sums"][0]["gpu_s"])

    def test_columns(self):
        """`cede ps --help` and `cede top --help` explain their columns, and cede(1) those of ps."""
        ps = set(re.findall(r'^    {"([A-Z]+)", ', read("src", "cli/cells.c"), re.M)) - {"NAME"}
        top = set(re.findall(r'^    \[\w+\] = {"([A-Z]+)"', read("src", "cli/top/text.c"), re.M))
        self.assertGreater(len(ps), 10)
        said = {verb: set(re.findall(r"\b[A-Z]{3,}\b", run(CEDE, "help", verb))) for verb in ("ps", "top")}
        self.assertLessEqual(ps, said["ps"])
        self.assertLessEqual(top - ps - {"NAME"}, said["top"])
        self.assertLessEqual(ps, set(re.findall(r"\b[A-Z]{3,}\b", read("man", "cede.1"))))

    def test_json(self):
        """Each field that `cede ps --json` can print is on cede-json(5), and no other. Which it can
        print the source says, as no one run shows all of them."""
        page = read("man", "cede-json.5")
        objects = {
            "The object": packed("api/replies.c", "reply_ps") | packed("api/client.c", "client_ps_page")
            | packed("cli/without_daemon.c", "look_records") | packed("cli/without_daemon.c", "look_others")
            | packed("api/replies.c", "reply_add_unmanaged"),
            "A job": rows("api/job_json.c", "job_fields") | rows("api/job_terms.c", "terms") | packed("cli/without_daemon.c", "from_journal_job")
            | packed("api/replies.c", "job_and_requests"),
            "Memory": packed("api/job_json.c", "memory_json"),
            "Yielded": packed("api/job_json.c", "yielded_json"),
            "Placed": packed("api/job_json.c", "placed_json"),
            "Why": packed("api/job_json.c", "why_json"),
            "Measured": packed("api/job_json.c", "why_measured_json"),
            "Counts": packed("api/job_json.c", "counts_json"),
            "Due": packed("api/job_json.c", "due_json"),
            "Requests": packed("api/hints.c", "hints_of"),
            "Leases": packed("api/hints.c", "hints_leases_json"),
            "A device": packed("api/replies.c", "gpus_of"),
            "An unmanaged program": packed("api/replies.c", "unmanaged_json"),
            "What top shows": packed("cli/top/json.c", "top_json"),
            "A GPU in top": packed("cli/top/json.c", "gpu_json"),
            "A job in top": packed("cli/top/json.c", "row_json") | listed("cli/top/json.c", "of_all")
            | listed("cli/top/json.c", "of_jobs"),
            "A program in top": listed("cli/top/json.c", "of_all") - {"number"} | {"user", "where"},
            "A process of others": packed("cli/without_daemon.c", "other"),
            "A target in no job": packed("cli/why.c", "in_none"),
            "CEDE STATUS": packed("cli/status.c", "status_json"),
            "CEDE RULES": packed("api/rules/rules_reply.c", "rules_reply") | packed("api/rules/rules_reply.c", "rules_test"),
            "A rule": packed("api/rules/rules_reply.c", "rule_json"),
            "A condition": packed("api/rules/rules_reply.c", "condition_json"),
            "An outcome": packed("api/rules/rules_reply.c", "outcome_json"),
        }
        of_messages = {"v", "ok", "more", "pending", "job_of"}  # cut off by client_ps() and rules_main()
        for title, fields in objects.items():
            self.assertEqual(fields_on(page, title), fields - of_messages, title)
        states = packed_words("api/job_json.c", "job_state") | {"swapping-out", "swapped", "swapping-in"}
        text = section(page, "A job").split(".It Va state\n")[1].split("\n.It")[0]
        self.assertEqual(set(re.findall(r"^\.Cm ([\w-]+)", text, re.M)), states)
        self.assertEqual(set(re.findall(r"^\.Cm ([\w-]+)", read("man", "cede.1").split(
            ".It STATE\n")[1].split("\n.It")[0], re.M)), states)

    def test_daemon_keys(self):
        """Keys of [daemon] are the same on the page, in the example and in what the daemon allows."""
        page = read("man", "cede.conf.5").split(".Ss Section daemon")[1].split(".Ss Section policy")[0]
        example = read("data", "cede.conf").split("[daemon]")[1].split("[policy]")[0]
        told = set(re.findall(r"^\.It Cm (\w+)$", page, re.M))
        self.assertEqual(told, set(re.findall(r"^#?(\w+) = ", example, re.M)))
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("[daemon]\nno_such_key = 1\n")
            f.flush()
            said = subprocess.run([CEDE, "daemon", "--config", f.name], text=True, timeout=60,
                                  stderr=subprocess.PIPE, check=False).stderr
        self.assertEqual(told, set(re.split(r", |\s+", said.split("allowed here: ")[1].strip())))

    def test_reload(self):
        """The unit reloads without a program that a small system does not have."""
        line = re.search(r"^ExecReload=(.*)", read("data", "ceded.service.in"), re.M)[1]
        self.assertEqual(line, '/bin/sh -c "kill -HUP $MAINPID"')
        default = functools.partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)  # as nohup may run this
        child = subprocess.Popen(["sleep", "1000"], preexec_fn=default)  # pylint: disable=subprocess-popen-preexec-fn
        subprocess.run(["/bin/sh", "-c", f"kill -HUP {child.pid}"], env={"PATH": "/nonexistent"}, check=True)
        self.assertEqual(child.wait(60), -1)

    def test_check(self):
        """ceded --check reads a configuration, and starts nothing: neither finds it a GPU nor makes it a directory."""
        with tempfile.TemporaryDirectory() as d:
            def check(text):
                with open(os.path.join(d, "conf"), "w", encoding="utf8") as f:
                    f.write(text)
                done = subprocess.run([CEDE, "daemon", "--check", "--config", os.path.join(d, "conf")], text=True, timeout=60,
                                      env=dict(os.environ, CEDE_DIR=os.path.join(d, "run")), capture_output=True, check=False)
                self.assertEqual(os.listdir(d), ["conf"])
                return done
            good, bad = check("[policy]\nname = edf\n"), check("[policy]\n\nname = none\n")
            self.assertEqual((good.returncode, good.stdout, good.stderr), (0, f"{d}/conf: no errors\n", ""))
            self.assertEqual((bad.returncode, bad.stdout), (2, ""))
            self.assertIn(f"{d}/conf:3: ", bad.stderr)
            never = check("[rule one]\nuid = root\nclass = batch\n[rule two]\nuid = root\nclass = normal\n")
            self.assertEqual((never.returncode, never.stdout), (0, f"{d}/conf: no errors, but 1 of 2 rules never match\n"))
            self.assertIn(f"{d}/conf: rule two never matches: ", never.stderr)

    def test_scenario(self):
        """Sections and keys of scenario files are those of the reader; the page's example is one."""
        page = read("man", "cede-scenario.5")
        sys.dont_write_bytecode = True
        sys.path.insert(0, os.path.join(SOURCE, "bench/report"))
        import scenario
        titles = set(re.findall(r"^\.Ss \[(\w+)", page, re.M))
        self.assertEqual(titles, set(scenario.SECTIONS))
        for title, (_, keys) in scenario.SECTIONS.items():
            heading = re.search(rf"^\.Ss (\[{title}\b.*)", page, re.M)[1]
            lines = re.findall(r"^\.It Cm (.*)", section(page, heading), re.M)
            told = {k for line in lines for k in line.split(" , ")}
            self.assertEqual(told, set(keys), title)
        metrics = scenario.OF_ROLE | scenario.OF_VERB | scenario.OF_DAEMON
        self.assertGreater(len(metrics), 15)
        told = set(re.findall(r"[a-z]\w*", " ".join(re.findall(r"^\.It Va (.*)", section(page, "METRICS"), re.M))))
        self.assertEqual(metrics, {m.removesuffix("_us") for m in told - {"verb", "ceded"}})
        example = re.search(r"\.Bd -literal.*?\n(.*?)\.Ed", section(page, "EXAMPLE"), re.S)[1]
        with tempfile.TemporaryDirectory() as d:
            with open(os.path.join(d, "waits.ini"), "w", encoding="utf8") as f:
                f.write(example)
            listed = json.loads(run(CEDE, "bench", "list", "--json", "--device", "nvidia", "--scenarios", d))
        self.assertEqual([s["name"] for s in listed], ["waits"])
        self.assertIn(listed[0]["title"], page)

    def test_library(self):
        """Each call of the headers has a page, with the same prototype."""
        def plain(text):
            return re.sub(r"\s+", " ", text).replace("* ", "*").strip()
        calls = {}
        for header in glob.glob(os.path.join(SOURCE, "include/cede/*.h")):
            text = re.sub(r"/\*.*?\*/", "", read(header), flags=re.S)
            for m in re.finditer(r"^(?!typedef)(\w[\w *]*?)(cede_\w+)\(([^;{]*?)\);", text, re.M):
                calls[m[2]] = (plain(m[1]), [plain(a) for a in m[3].split(",")],
                               "cede/" + os.path.basename(header))
        self.assertGreater(len(calls), 30)
        for name, (kind, arguments, header) in calls.items():
            page = read("man", name + ".3")
            if page.startswith(".so"):
                page = read("man", os.path.basename(page.split()[1]))
            m = re.search(rf'^\.Ft "?(.*?)"?\n\.Fn {name}((?: "[^"]*")*)$', page, re.M)
            self.assertIsNotNone(m, name)
            self.assertEqual(plain(m[1]), kind, name)
            self.assertEqual([plain(a) for a in re.findall(r'"([^"]*)"', m[2])], arguments, name)
            self.assertIn(".In " + header, page)


if __name__ == "__main__":
    unittest.main()
