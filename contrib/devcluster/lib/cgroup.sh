# Functions for the cgroups of a devcluster with --cgroup v1 or v2. Sourced by init.sh, devcluster and machine/boot.
#
# Slurm derives the name of a job's cgroup from the node name and the job id, which can be the same in two clusters, so
# each cluster has its own cgroup in every hierarchy, and a cgroup namespace with this cgroup as its root. Slurm finds
# the hierarchies at the usual paths, and does not change the machine's cgroups. Only --memory-limits with v2 changes
# them: it enables the controller hugetlb, which the emulated driver uses, for all of the machine's top cgroups.
# shellcheck shell=bash

readonly CGROUPS=/sys/fs/cgroup
readonly V1_CONTROLLERS=(devices freezer) # proctrack/cgroup needs freezer

# mount_cgroups VERSION: mounts the hierarchies. The caller must be in a private mount namespace.
mount_cgroups() {
    local controller
    if [[ $1 == v2 ]]; then
        mount -t cgroup2 cgroup2 "$CGROUPS"
        return
    fi
    mount -t tmpfs -o mode=755 tmpfs "$CGROUPS"
    for controller in "${V1_CONTROLLERS[@]}"; do
        mkdir "$CGROUPS/$controller"
        mount -t cgroup -o "$controller" cgroup "$CGROUPS/$controller"
    done
}

# cgroup_dirs VERSION NAME: prints the paths of the cluster's cgroup in each hierarchy, as seen from the machine.
cgroup_dirs() {
    if [[ $1 == v2 ]]; then
        echo "$CGROUPS/$2"
    else
        printf "$CGROUPS/%s/$2\n" "${V1_CONTROLLERS[@]}"
    fi
}

# enter_cgroups VERSION NAME: creates the cluster's cgroups, and moves this process into them.
enter_cgroups() {
    local dir
    mount_cgroups "$1"
    if [[ $1 == v2 && ${MEMORY_LIMITS:-none} != none ]]; then
        echo +hugetlb >"$CGROUPS/cgroup.subtree_control" ||
            die "--memory-limits needs the controller hugetlb in the machine's cgroup v2"
    fi
    for dir in $(cgroup_dirs "$1" "$2"); do
        mkdir "$dir"
        echo $$ >"$dir/cgroup.procs"
    done
}

# own_cgroups VERSION: remounts the hierarchies. A mount that is older than the cgroup namespace still shows the
# machine's cgroups. With v2, it moves this process into systemd's cgroup for PID 1, because no controller can be enabled
# for the children of a cgroup that contains processes.
own_cgroups() {
    umount -R "$CGROUPS"
    mount_cgroups "$1"
    [[ $1 != v1 ]] || return 0
    mkdir -p "$CGROUPS/system.slice" # Slurm creates its scope in systemd's slice
    own_cgroup init.scope
}

# join_cgroups VERSION ROOT: moves this process into a running cluster's cgroups, mounted below ROOT.
join_cgroups() {
    local dir
    for dir in $(cgroup_dirs "$1" "$([[ $1 == v1 ]] && echo . || echo init.scope)"); do
        echo $$ >"$2$dir/cgroup.procs"
    done
}

# own_cgroup NAME: moves this process into a new v2 cgroup, as systemd does for each service. This is needed because
# slurmd 24.11 moves all other processes out of its cgroup, and fails if one of them has just ended.
own_cgroup() {
    mkdir "$CGROUPS/$1"
    echo "$BASHPID" >"$CGROUPS/$1/cgroup.procs"
}

# remove_cgroups VERSION NAME: removes the cgroups of a cluster that has ended.
remove_cgroups() {
    unshare --mount bash -euo pipefail -c '
        source "$1/cgroup.sh"
        mount_cgroups "$2"
        for dir in $(cgroup_dirs "$2" "$3"); do
            [[ ! -d $dir ]] || find "$dir" -depth -type d -exec rmdir {} +
        done' - "$(dirname "${BASH_SOURCE[0]}")" "$1" "$2"
}

# cgroup_conf VERSION: prints cgroup.conf.
cgroup_conf() {
    echo "CgroupPlugin=cgroup/$1"
    echo "ConstrainDevices=yes"
    # Slurm cannot request a scope from systemd, because the cluster does not run systemd.
    [[ $1 == v1 ]] || echo "IgnoreSystemd=yes"
}
