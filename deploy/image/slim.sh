#!/bin/sh
# Takes from the base image, of Debian and Python, what nobody runs in a container of devherd: what installs packages, what has
# windows or manuals, what manages users and disks. A shell and the usual small tools stay: for `kubectl exec`, `kubectl cp` and the
# programs of `health.programs`. What dpkg knows is removed by dpkg, so that scanners see what is there.
set -eu

library=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
prefix=$(python3 -c 'import sys; print(sys.base_prefix)')
for part in ensurepip idlelib lib2to3 pydoc_data test tkinter turtledemo turtle.py __phello__ site-packages; do
    rm -rf "${library:?}/$part"
done
rm -f "$library"/lib-dynload/_tkinter.* "$library"/lib-dynload/_test*.so "$library"/lib-dynload/_xx*.so "$library"/lib-dynload/xx*.so
rm -rf "$library"/config-* "$prefix/include" "$prefix/share" "$prefix/lib/pkgconfig"
for program in 2to3 idle pip pydoc python3-config python-config; do
    rm -f "$prefix/bin/$program"*
done
rm -f "$prefix"/bin/python3.*-config

# Without their scripts, which talk to services that are not here and to each other's programs.
unwanted=
for package in apt libapt-pkg6.0 libapt-pkg7.0 gpgv sqv debian-archive-keyring adduser passwd login login.defs \
    mount e2fsprogs libext2fs2 libext2fs2t64 libss2 logsave fdisk perl-base sysvinit-utils init-system-helpers \
    util-linux-extra libdebconfclient0 debconf; do
    if dpkg-query --show "$package" >/dev/null 2>&1; then
        rm -f /var/lib/dpkg/info/"$package"*.prerm /var/lib/dpkg/info/"$package"*.postrm
        unwanted="$unwanted $package"
    fi
done
# shellcheck disable=SC2086 # one word a package
[ -z "$unwanted" ] || dpkg --purge --force-all $unwanted >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log >&2; exit 1; }
rm -f /tmp/dpkg.log
rm -rf /var/cache/* /var/log/* /var/lib/apt /var/lib/dpkg/*-old /usr/share/doc-base /usr/share/man /usr/share/info /usr/share/lintian

# The official image has no byte code, and in a pod nobody could keep it. Whatever time stamps the files get, it stays valid.
python3 -m compileall -q --invalidation-mode unchecked-hash "$library"
