# Functions for root directories with a Debian suite. Sourced by ../release and contrib/packages/fresh.
# shellcheck shell=bash

# mirror: prints the URL from which this machine's apt gets Debian's main archive.
mirror() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' |
        grep -v security | head -n 1 | sed "s:/*$::"
}

# bootstrap SUITE ROOT [OPTION...]: installs the essential packages of the suite in the directory ROOT, with debootstrap
# and the given options. The log is ROOT.log. Returns 1 if an installation fails.
bootstrap() {
    local suite=$1 root=$2
    shift 2
    command -v debootstrap >/dev/null || apt-get install -y --no-install-recommends debootstrap >&2 || return 1
    mkdir -p "$root"
    debootstrap --variant=minbase "$@" "$suite" "$root" "$(mirror)" >"$root.log" 2>&1 || return 1
    # apt must accept a mirror's package index even if it has expired. debootstrap has checked its signature.
    echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/90valid"
}
