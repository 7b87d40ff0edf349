#!/bin/sh
# Within a bare root, in a pid namespace of its own, with the packages in /old and /new: installs, runs jobs on the
# software GPU with a ceded started by hand (no systemd here), upgrades, removes and purges, and looks at what is left.
# usage: inside.sh
set -eu
mount -t proc proc /proc
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 CEDE_SOFT_SOCKET=/run/cede-softgpu/socket
. /common.sh
start_ceded() { ceded --device soft 2>>/ceded.log & ceded=$!; until_true runs; }

all_files >/before
step install "$(ls /old)"
apt-get install -y -qq --no-install-recommends /old/*.deb >/apt.log 2>&1 || { cat /apt.log; exit 1; }
getent group cede >/dev/null || fail "no group cede"
[ -d /run/cede ] && [ -d /var/lib/cede ] || fail "no directories"
cede --version
python3 -c 'import ctypes, cede, cede_queue, cede_slice; ctypes.CDLL("libcede.so.0").cede_connect' || fail "python3-cede"

step jobs
install -d -m 755 /run/cede-softgpu
cede-softgpu >/dev/null 2>&1 & softgpu=$!
until_true test -S "$CEDE_SOFT_SOCKET"
start_ceded
cede run -q -c latency -n serve -- cede-load latency --device soft --report 200 >/serve.log 2>&1 &
cede run -q -c batch -n train -- cede-load batch --device soft --report 200 >/train.log 2>&1 & train=$!
cede run -q -c batch -n render -- cede-load batch --device soft --report 200 >/render.log 2>&1 &
goes_on /train.log; goes_on /render.log
[ "$(cede ps | grep -c '^ *#')" = 3 ] || fail "three jobs were started"
was=$(list_jobs)

step upgrade "$(ls /new)"
apt-get install -y -qq --no-install-recommends /new/*.deb >/apt.log 2>&1 || { cat /apt.log; exit 1; }
jobs_are "$was"
kill "$ceded" && wait "$ceded" || fail "ceded of the old version did not end well" # as systemctl restart does
start_ceded
jobs_are "$was"
goes_on /train.log; goes_on /render.log

step remove, with a paused job
cede pause train >/dev/null
env -u CEDE_SOFT_SOCKET apt-get remove -y -qq 'cede*' 'libcede*' python3-cede >/apt.log 2>&1 || { cat /apt.log; exit 1; }
grep -i 'undo:' /apt.log && fail "the removal left something"
kill -0 "$train" || fail "the paused program was killed"
[ ! -e /proc/"$ceded"/exe ] || fail "ceded still runs"
goes_on /train.log; goes_on /render.log
[ ! -e /run/cede/journal ] || fail "/run/cede is left"
[ -e /etc/cede/cede.conf ] && [ -e /var/lib/cede/accounts.sqlite ] || fail "configuration and accounts are left until the purge"
kill "$softgpu"

step purge
apt-get purge -y -qq cede cede-slurm >/apt.log 2>&1 || { cat /apt.log; exit 1; }
all_files >/after
comm -13 /before /after | grep -i cede | grep -v '^/run/cede-softgpu/' && fail "the purge left these" || true
step done
