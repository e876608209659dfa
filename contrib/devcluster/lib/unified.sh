#!/bin/bash
# unified.sh slurmd|slurmstepd ARGUMENT...: becomes that program on a node with cgroup v2. Slurm's plugin for it refuses a
# machine on which version 1 has hierarchies too ("Hybrid mode is not supported"), by the first line of its own
# /proc/self/cgroup. Where there is such a line, the program is shown the line of version 2 alone: the one that it has,
# or, for slurmstepd, the one that it is about to move to and checks (22.05). The kernel's part is real.
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
