# A devcluster's own part of the machine's cgroups, for --cgroup v1 and v2. Sourced by init.sh and by devcluster.
#
# Slurm names a job's cgroup by node and job, so two clusters on one machine would share it. Each gets a cgroup of its
# own in every hierarchy, and a cgroup namespace in which that is the root. Slurm finds the hierarchies where it looks
# for them; the machine's own are as before.
# shellcheck shell=bash

readonly CGROUPS=/sys/fs/cgroup
readonly V1_CONTROLLERS=(devices freezer) # freezer: proctrack/cgroup

# mount_cgroups VERSION: in a private mount namespace.
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

# cgroup_dirs VERSION NAME: the cluster's cgroup in each hierarchy, as the machine sees them.
cgroup_dirs() {
    if [[ $1 == v2 ]]; then
        echo "$CGROUPS/$2"
    else
        printf "$CGROUPS/%s/$2\n" "${V1_CONTROLLERS[@]}"
    fi
}

# enter_cgroups VERSION NAME: makes the cluster's cgroups and moves this process there.
enter_cgroups() {
    local dir
    mount_cgroups "$1"
    for dir in $(cgroup_dirs "$1" "$2"); do
        mkdir "$dir"
        echo $$ >"$dir/cgroup.procs"
    done
}

# own_cgroups VERSION: in the new cgroup namespace, what was mounted before still shows the machine's.
own_cgroups() {
    umount -R "$CGROUPS"
    mount_cgroups "$1"
    [[ $1 == v1 ]] || mkdir -p "$CGROUPS/system.slice" # systemd's, where Slurm puts its scope
}

# join_cgroups VERSION ROOT: moves this process into the cgroups of a cluster that runs, as they are mounted below ROOT.
join_cgroups() {
    local dir
    for dir in $(cgroup_dirs "$1" .); do
        echo $$ >"$2$dir/cgroup.procs"
    done
}

# own_cgroup NAME: moves this process to a new cgroup of version 2, as systemd gives each service one. slurmd 24.11 moves the
# other processes of its cgroup away, and fails if one of them has just ended.
own_cgroup() {
    mkdir "$CGROUPS/$1"
    echo "$BASHPID" >"$CGROUPS/$1/cgroup.procs"
}

# remove_cgroups VERSION NAME: of a cluster that has ended.
remove_cgroups() {
    unshare --mount bash -euo pipefail -c '
        source "$1/cgroup.sh"
        mount_cgroups "$2"
        for dir in $(cgroup_dirs "$2" "$3"); do
            [[ ! -d $dir ]] || find "$dir" -depth -type d -exec rmdir {} +
        done' - "$(dirname "${BASH_SOURCE[0]}")" "$1" "$2"
}

# cgroup_conf VERSION
cgroup_conf() {
    echo "CgroupPlugin=cgroup/$1"
    echo "ConstrainDevices=yes"
    # There is no systemd to ask for a scope.
    [[ $1 == v1 ]] || echo "IgnoreSystemd=yes"
}
