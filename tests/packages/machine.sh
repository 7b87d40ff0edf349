#!/bin/sh
# Within a virtual machine with systemd, AppArmor and Slurm, with the packages in /old and /new: what inside.sh, which
# has no systemd, cannot see. ceded runs from its hardened unit under its AppArmor profile, enforced, and steers a
# user's jobs on the software GPU; it is killed, upgraded and removed meanwhile; a job of Slurm becomes a job of cede's.
# usage: machine.sh
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/root CEDE_SOFT_SOCKET=/run/cede-softgpu/socket
. /common.sh
trap 'journalctl -b --no-pager -u ceded -u 'cede-metrics*' -u train -u slurmjob -u slurmd -u slurmctld -u machine -n 60' EXIT
apt_get() { apt-get -y -qq -o Dpkg::Options::=--force-confold --no-install-recommends "$@" >/apt.log 2>&1 || { cat /apt.log; exit 1; }; }
pid() { systemctl show -P MainPID ceded; }
same_jobs() { n=0; until [ "$(list_jobs)" = "$was" ]; do n=$((n + 1)); [ $n -lt 50 ] || fail "jobs: wanted $was"; sleep 0.2; done; }
status() { sed -n "s/^$1:[[:space:]]*//p" "/proc/$(pid)/status"; }
job() { # NAME USER COMMAND...: in a unit of its own
    unit=$1 user=$2 && shift 2
    systemd-run -q --unit="$unit" --uid="$user" --setenv=CEDE_SOFT_SOCKET="$CEDE_SOFT_SOCKET" -p "StandardOutput=file:/$unit.log" -- "$@"
}
enforce() { # the profile, which the package has in complain mode
    sed 's/flags=(complain, /flags=(/' /etc/apparmor.d/ceded >/run/ceded.profile && apparmor_parser -r /run/ceded.profile
}
confined() { [ "$(cat "/proc/$(pid)/attr/apparmor/current")" = "ceded ($1)" ] || fail "label: $(cat "/proc/$(pid)/attr/apparmor/current")"; }
hardened() {
    systemctl is-active -q ceded || fail "ceded does not run"
    [ "$(status NoNewPrivs) $(status Seccomp)" = "1 2" ] || fail "no new privileges, seccomp: $(status NoNewPrivs) $(status Seccomp)"
    [ "$(status CapEff)" = 0000000000080024 ] || fail "capabilities: $(status CapEff)"
    nsenter -t "$(pid)" -m -- sh -c 'touch /etc/x /var/x 2>/dev/null' && fail "ceded could write files"
    [ "$(nsenter -t "$(pid)" -n -- ip -o link | wc -l)" = 1 ] || fail "ceded has a network"
}

[ "$(cat /sys/module/apparmor/parameters/enabled)" = Y ] || fail "the kernel has no AppArmor"
all_files >/before
step install, without a GPU
apt_get install /old/*.deb
systemctl is-enabled -q ceded || fail "ceded is not enabled"
systemctl is-active -q cede-metrics.socket && fail "the socket of metrics is started unasked"

step ceded from its unit: "$(systemd-analyze security --no-pager ceded | sed -n 's/.*exposure level for //p')"
install -d -m 755 /run/cede-softgpu
systemd-run -q --unit=softgpu --setenv=CEDE_SOFT_SOCKET="$CEDE_SOFT_SOCKET" cede-softgpu
until_true test -S "$CEDE_SOFT_SOCKET"
chmod 666 "$CEDE_SOFT_SOCKET"
sed -i 's/^#device = auto/device = soft@\/run\/cede-softgpu\/socket/' /etc/cede/cede.conf
systemctl reset-failed ceded 2>/dev/null || true
systemctl restart ceded
confined complain
enforce
systemctl restart ceded
confined enforce
hardened

step jobs of a user
job serve root cede run -q -c latency -n serve -- cede-load latency --device soft
job train ada cede run -q -c batch -n train -- cede-load batch --device soft --report 200
job render ada cede run -q -c batch -n render -- cede-load batch --device soft --report 200
goes_on /train.log; goes_on /render.log
was=$(list_jobs)
[ "$(echo "$was" | tr ' ' '\n' | grep -c '#')" = 3 ] || fail "three jobs were started: $was"
systemctl start cede-metrics.socket
metrics() { python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:9479/metrics", timeout=20).read().decode())'; }
metrics | grep -q '^cede_.*train' || fail "metrics"

step kill -9, which systemd answers
before=$(pid)
kill -9 "$before"
until_true sh -c "[ \"\$(systemctl show -P MainPID ceded)\" != $before ]"
until_true runs
same_jobs
confined enforce
goes_on /train.log; goes_on /render.log

step upgrade
before=$(pid)
apt_get install /new/*.deb
[ "$(pid)" != "$before" ] || fail "the upgrade did not restart ceded"
same_jobs
goes_on /train.log; goes_on /render.log
metrics | grep -q '^cede_.*train' || fail "metrics after the upgrade"
enforce
systemctl restart ceded
same_jobs
hardened

step Slurm "$(slurmd -V)"
ip addr add 10.0.0.1/32 dev lo
head -c 1024 /dev/urandom >/etc/munge/munge.key
systemctl restart munge slurmctld slurmd
until_true sh -c 'sinfo -h -o %T | grep -q idle'
srun -Q true || fail "srun without cede's options"
srun -Q --gpu-class=latency true 2>/slurm.log && fail "a class above the ceiling"
grep -q 'cede: --gpu-class=latency is not allowed: normal and batch are' /slurm.log || { cat /slurm.log; fail "no message"; }
job slurmjob ada srun -D / -Q --gpu-class=batch cede-load batch --device soft --report 200
goes_on /slurmjob.log
cede ps
cede ps | grep -q ' batch .* slurm-[0-9]*$' || fail "no job of Slurm's"
number=$(squeue -h -o %i)
kill -9 "$(pid)"
until_true sh -c "cede ps | grep -q ' batch .* slurm-$number\$'"
goes_on /slurmjob.log
scancel "$number"
until_true sh -c "! cede ps | grep -q slurm-"
cede acct --sum-by slurmjob

step AppArmor: "$(journalctl -k -b --no-pager | grep -c 'profile="ceded"' || true)" messages
journalctl -k -b --no-pager | grep 'apparmor="\(DENIED\|ALLOWED\)".*profile="ceded"' && fail "the profile does not allow what ceded does"

step remove, with a paused job
pidof cede-load >/pids
cede pause train >/dev/null
(unset CEDE_SOFT_SOCKET; apt_get remove 'cede*' 'libcede*' python3-cede) # as sudo has it: the journal names the device
grep -i 'undo:' /apt.log && fail "the removal left something"
[ "$(pidof cede-load)" = "$(cat /pids)" ] || fail "programs ended"
goes_on /train.log; goes_on /render.log
[ ! -e /run/cede/journal ] || fail "/run/cede is left"
srun -Q true || fail "srun after the removal"

step purge
systemctl stop softgpu
apt_get purge cede cede-slurm
all_files >/after
comm -13 /before /after | grep -i cede | grep -v -e '^/run/cede-softgpu/' -e '^/run/ceded.profile' && fail "the purge left these" || true
trap - EXIT
echo "machine passed"
