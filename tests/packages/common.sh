# What inside.sh and machine.sh, which look at installed packages while jobs run, both do. Sourced; /bin/sh, set -eu.
step() { echo "== $*"; }
fail() { echo "FAILED: $*"; cede ps 2>&1 || true; cat /ceded.log 2>/dev/null; exit 1; }
kernels() { sed -n 's/.*"kernels":\([0-9]*\).*/\1/p' "$1" | tail -n 1; }
goes_on() { # LOG: the program behind it gets work done
    done=$(kernels "$1") n=0
    while [ "$(kernels "$1")" = "$done" ]; do
        n=$((n + 1))
        [ $n -lt 100 ] || fail "the program of $1 has stopped"
        sleep 0.2
    done
}
list_jobs() { cede ps 2>/dev/null | awk '/^ *#/ { print $1, $3 }' | sort | tr '\n' ' '; }
jobs_are() { [ "$(list_jobs)" = "$1" ] || fail "jobs: wanted $1"; }
all_files() { find /etc /usr /lib /var/lib /run -xdev ! -path '/var/lib/dpkg/*' ! -path '/var/lib/apt/*' ! -type d 2>/dev/null | sort; }
until_true() { n=0; until "$@" >/dev/null 2>&1; do n=$((n + 1)); [ $n -lt 600 ] || fail "$*"; sleep 0.1; done; }
runs() { cede ps --json | grep -q '"daemon": *true'; } # ceded: `cede policy` answers without one too
