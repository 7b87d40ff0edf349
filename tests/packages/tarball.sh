#!/bin/sh
# Within a bare root, with the unpacked tarball in /tar: installs it, runs it, installs it again, removes it.
# usage: tarball.sh
set -eu
mount -t proc proc /proc
find /usr/local /etc /lib -xdev ! -type d | sort >/before
/tar/install.sh
cede --version
/tar/install.sh
cede demo --device soft --seconds 10 >/demo.log 2>&1 || { cat /demo.log; exit 1; }
grep -q '"name": "libuv1-dev"' /tar/cede.spdx.json
PREFIX=/opt/cede /tar/install.sh
grep -q '^ExecStart=/opt/cede/bin/ceded$' /opt/cede/lib/systemd/system/ceded.service
# The gate is found beside the program, wherever that was put.
CEDE_DIR=/run/try /opt/cede/bin/cede run -q -c batch --gpu-device gate -- env | grep -q '^OPENCL_LAYERS=/opt/cede/'
PREFIX=/opt/cede /tar/install.sh --uninstall
[ ! -e /opt/cede ]
/tar/install.sh --uninstall
find /usr/local /etc /lib -xdev ! -type d ! -name 'ld.so.cache' | sort >/after
comm -13 /before /after | { ! grep .; }
