#!/usr/bin/env bash
# Fetches the programs that tests use and this machine lacks, as Debian packages unpacked into .tools: nothing is
# installed. Where they cannot be fetched, it says which tests will be skipped, and ends with 0 all the same.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/.tools
root=$tools/root

# A program on PATH is left alone when it answers.
works() {
    case $1 in
    openssl) set -- "$1" version ;;
    busybox) set -- "$tools/bin/$1" true ;; # its test needs the static one, whatever PATH has
    *) set -- "$1" --version ;;
    esac
    PATH="$PATH:$tools/bin" "$@" >/dev/null 2>&1
}

unpack() ( # PACKAGE...
    download=$(mktemp -d) && trap 'rm -rf "$download"' EXIT && cd "$download" || exit
    apt-get -qq -o APT::Sandbox::User=root download "$@" || exit
    for package in ./*.deb; do
        dpkg-deb --extract "$package" "$root" || exit
    done
)

libraries() { find "$root" -type f \( -name '*.so' -o -name '*.so.[0-9]*' \) "$@"; }

# The path to its libraries goes into the program itself: buildah starts copies of itself with an empty environment.
set_library_path() { # PROGRAM
    local patchelf=$root/usr/bin/patchelf path
    [ -x "$patchelf" ] || unpack patchelf || return
    path=$(libraries -printf '%h\n' | sort -u | paste -sd:)
    libraries -exec "$patchelf" --set-rpath "$path" {} +
    "$patchelf" --set-rpath "$path" "$1"
}

provide() { # NAME PACKAGE...
    local name=$1 program
    shift
    mkdir -p "$root" "$tools/bin"
    unpack "$@" || return
    program=$(find "$root/usr/bin" "$root/bin" -name "$name" -print -quit 2>/dev/null)
    [ -n "$program" ] || return
    ln -sf "$program" "$tools/bin/$name"
    works "$name" || set_library_path "$program"
}

fetch() { # NAME 'PACKAGE...' WHAT_NEEDS_IT
    local name=$1 packages=$2
    works "$name" && return
    echo "fetching $name into .tools (Debian packages: $packages)"
    # shellcheck disable=SC2086 # one word a package
    if command -v apt-get >/dev/null && provide "$name" $packages && works "$name"; then return; fi
    echo "tests/tools.sh: no $name — it could not be fetched with apt-get — install it; until then the tests of $3 are skipped" >&2
}

fetch promtool "prometheus" "the alert rules"
fetch prometheus "prometheus" "alerts end to end and the dashboard"
fetch prometheus-alertmanager "prometheus-alertmanager" "alerts end to end"
fetch systemd-analyze "systemd libsystemd-shared libapparmor1 libseccomp2 libmount1 libblkid1 libkmod2 libcap2" \
    "the systemd unit"
fetch buildah "buildah libdevmapper1.02.1 libgpgme11 libassuan0 libseccomp2" "the container image"
fetch busybox "busybox-static" "the container image"
fetch openssl "openssl" "TLS"
fetch curl "curl" "TLS and Unix sockets"
fetch zsh "zsh zsh-common" "the completion of commands"
fetch fish "fish fish-common libpcre2-32-0" "the completion of commands"

# groff looks for its fonts and macros where it would have been installed.
if ! works groff; then
    echo "fetching groff into .tools (Debian packages: groff-base)"
    mkdir -p "$root" "$tools/bin"
    if command -v apt-get >/dev/null && unpack groff-base libuchardet0; then
        share=$(echo "$root"/usr/share/groff/[0-9]*)
        cat >"$tools/bin/groff" <<END
#!/bin/sh
export GROFF_BIN_PATH=$root/usr/bin GROFF_FONT_PATH=$share/font GROFF_TMAC_PATH=$share/tmac
export LD_LIBRARY_PATH=$root/usr/lib/$(uname -m)-linux-gnu
PATH=$root/usr/bin:\$PATH exec $root/usr/bin/groff "\$@"
END
        chmod +x "$tools/bin/groff"
    fi
    works groff || echo "tests/tools.sh: no groff — it could not be fetched with apt-get — install it; until then the manual page is not tested" >&2
fi

# The browser has a root of its own, with what it needs that is not installed here. Its processes inherit the path.
provide_browser() {
    local name=$1 place=$tools/browser packages
    packages=$(apt-get -s -qq --no-install-recommends install "$name" | awk '/^Inst/ { print $2 }') || return
    rm -rf "$place" && mkdir -p "$place" "$tools/bin" || return
    # shellcheck disable=SC2086 # one word a package
    root=$place unpack $packages || return
    cat >"$tools/bin/$name" <<END
#!/bin/sh
place=\$(dirname "\$(readlink -f "\$0")")/../browser/usr/lib
libraries=\$place/$(uname -m)-linux-gnu
export LD_LIBRARY_PATH="\$libraries:\$libraries/pulseaudio"
exec "\$place/chromium/$name" "\$@"
END
    chmod +x "$tools/bin/$name" && works "$name"
}

browser=chromium-headless-shell
if ! works "$browser"; then
    echo "fetching $browser into .tools (Debian packages: $browser, and libraries that are not installed)"
    if ! { command -v apt-get >/dev/null && provide_browser "$browser"; }; then
        echo "tests/tools.sh: no $browser — it could not be fetched with apt-get — install it; until then the tests of the status page in a browser are skipped" >&2
    fi
fi

axe=axe-core@4.14.1
if ! [ -e "$tools/$axe/axe.min.js" ]; then
    echo "fetching $axe into .tools (npm)"
    mkdir -p "$tools/$axe"
    if ! { command -v npm >/dev/null && package=$(cd "$tools" && npm pack --silent --cache "$tools/npm" "$axe") &&
        tar -xzf "$tools/$package" -C "$tools/$axe" --strip-components=1 package/axe.min.js package/LICENSE && rm "$tools/$package"; }; then
        echo "tests/tools.sh: no $axe — it could not be fetched with npm — install npm; until then the status page's accessibility is not tested" >&2
    fi
fi

# It looks for its scripts where it would have been installed.
if [ "${1:-}" = systemd ]; then
    fetch systemd-nspawn "systemd-container libsystemd-shared libapparmor1 libseccomp2 libmount1 libblkid1 libkmod2 libcap2" \
        "the unit on a booted systemd"
    if ! works debootstrap; then
        echo "fetching debootstrap into .tools (Debian packages: debootstrap)"
        mkdir -p "$root" "$tools/bin"
        if command -v apt-get >/dev/null && unpack debootstrap; then
            printf '#!/bin/sh\nexport DEBOOTSTRAP_DIR=%s\nexec %s "$@"\n' "$root/usr/share/debootstrap" "$root/usr/sbin/debootstrap" \
                >"$tools/bin/debootstrap"
            chmod +x "$tools/bin/debootstrap"
        fi
        works debootstrap || echo "tests/tools.sh: no debootstrap — it could not be fetched with apt-get — install it; until then the unit is not tested on a booted systemd" >&2
    fi
fi

if [ "${1:-}" = cluster ]; then
    fetch runc "runc libseccomp2" "the real cluster"
    [ -x "$root/usr/lib/cni/bridge" ] || unpack containernetworking-plugins ||
        echo "tests/tools.sh: no CNI plugins — they could not be fetched with apt-get — tests of the real cluster are skipped" >&2
fi
