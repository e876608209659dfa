#!/bin/bash
# unified.sh slurmd|slurmstepd ARGUMENT...: executes the program on a node with cgroup v2, also on a machine that has
# hierarchies of version 1 as well. Slurm's plugin for v2 refuses such a machine ("Hybrid mode is not supported") if the
# first line of /proc/self/cgroup belongs to version 1. In that case unified.sh mounts another file over
# /proc/self/cgroup, with a single line of version 2: for slurmd its actual line, for slurmstepd the line of the cgroup
# that slurmstepd will move to, because slurmstepd compares the two (22.05). The kernel's cgroups are real.
set -euo pipefail

show() {
    local file
    file=$(mktemp /run/unified.XXXXXX)
    echo "$1" >"$file"
    mount --bind "$file" "/proc/$$/cgroup"
    rm "$file"
}

read -r first </proc/self/cgroup
if [[ $first != 0:* ]]; then
    if [[ $1 == slurmd ]]; then
        show "$(grep '^0:' /proc/self/cgroup)"
    else
        show "0::/system.slice/$(hostname)_slurmstepd.scope/system"
    fi
fi
exec "$@"
