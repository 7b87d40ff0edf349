#!/bin/sh
# Installs what is beside this script, or removes what it installed. An installation, with the directories that it
# made, is listed in PREFIX/share/cede/MANIFEST; nothing else is ever removed, and nothing that a package installed is
# overwritten.
#
# usage: [PREFIX=/usr/local] [DESTDIR=] ./install.sh [--uninstall]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}$prefix
manifest=share/cede/MANIFEST
fail() { echo "install.sh: $*" >&2; exit 1; }
live() { [ -z "${DESTDIR:-}" ] && [ "$(id -u)" = 0 ]; }
services() { live && [ -d /run/systemd/system ]; }
packaged() { # FILE
    if command -v dpkg-query >/dev/null; then dpkg-query -S "$1" >/dev/null 2>&1 && return; fi
    if command -v rpm >/dev/null; then rpm -qf "$1" >/dev/null 2>&1 && return; fi
    return 1
}

writable() { [ -w "$root" ] || fail "cannot write to $root: run it as root, or set PREFIX"; }
remove() { # a list of files below $root, and of directories, with a slash, which go if they are empty
    LC_ALL=C sort -r | while IFS= read -r f; do
        case $f in
        */) rmdir "$root/$f" 2>/dev/null || true ;;
        *) rm -f "$root/$f" ;;
        esac
    done
}

case ${1:-} in
'') ;;
--uninstall)
    [ -e "$root/$manifest" ] || fail "there is no $root/$manifest: nothing that this script installed; set PREFIX if it was another"
    writable
    if services; then systemctl disable --now ceded.service cede-metrics.socket cede-metrics.service cede-sleep.service >/dev/null 2>&1 || true; fi
    if live; then "$root/libexec/cede/undo" || echo "install.sh: some changes were not undone; the lines above say which" >&2; fi
    list=$(mktemp)
    trap 'rm -f "$list"' EXIT
    cp "$root/$manifest" "$list"
    remove <"$list"
    rmdir "$root" 2>/dev/null || true
    if services; then systemctl daemon-reload; fi
    if live; then ldconfig; fi
    echo "removed from $root; /etc/cede and the accounting records in /var/lib/cede are left"
    exit ;;
*) sed -n '/^# usage/s/^# //p' "$0" >&2 && exit 2 ;;
esac

"$here/root/bin/cede" --version >/dev/null || fail "this cede does not run here: it is for $(cat "$here/ARCH"), with the C library of Debian 12 or newer"
for f in "$prefix/bin/cede" /usr/bin/cede; do
    if [ -z "${DESTDIR:-}" ] && [ -e "$f" ] && packaged "$f"; then
        fail "$f belongs to a package: upgrade that, or remove it first (apt remove cede)"
    fi
done
mkdir -p "$root" 2>/dev/null || true
writable
old=$(mktemp) new=$(mktemp) dirs=$(mktemp)
trap 'rm -f "$old" "$new" "$dirs"' EXIT
[ ! -e "$root/$manifest" ] || cp "$root/$manifest" "$old"
(cd "$here/root" && find . -type f -o -type l) | sed 's,^\./,,' | sort >"$new"
(cd "$here/root" && find . -mindepth 1 -type d && echo ./share && echo ./share/cede) | sed 's,^\./,,' | sort -u |
    while IFS= read -r d; do
        if mkdir "$root/$d" 2>/dev/null || grep -qxF "$d/" "$old"; then echo "$d/"; fi
        [ -d "$root/$d" ] || fail "cannot make $root/$d"
    done >"$dirs"
while IFS= read -r f; do
    cp -dp "$here/root/$f" "$root/$f.new" # a program that runs is replaced, not written to
    case $f in
    lib/systemd/* | libexec/* | *.pc) sed -i "s,/usr/local,$prefix,g" "$root/$f.new" ;;
    esac
    mv -f "$root/$f.new" "$root/$f"
done <"$new"
cat "$dirs" >>"$new"
echo "$manifest" >>"$new"
install -m 644 "$new" "$root/$manifest"
grep -vxFf "$new" "$old" | remove || true
echo "installed in $root"
if live; then ldconfig; fi
if services; then
    case $prefix in /usr | /usr/local) ;; *) systemctl link "$root"/lib/systemd/system/* ;; esac
    systemd-sysusers "$root/lib/sysusers.d/cede.conf"
    systemd-tmpfiles --create "$root/lib/tmpfiles.d/cede.conf"
    systemctl daemon-reload
    if systemctl is-active --quiet ceded; then
        systemctl restart ceded # it takes its jobs over
    else
        echo "start the scheduler by: systemctl enable --now ceded"
    fi
fi
