# Functions for all devcluster scripts: paths, messages, and the reliable identification of processes.
# shellcheck shell=bash

readonly RUN=/run/devcluster            # exists only inside the namespaces
readonly UNITS=$RUN/units               # the daemons' keepers' files (unit.sh)
readonly HOLDERS=$RUN/holders           # nN, dbd, ctl, login: the pid of the process that keeps the host's namespaces alive
readonly WATCHER2=$RUN/watcher2         # the files of the host of the second watcher (unit.sh)
readonly BUILD=$RUN/build               # the binaries, at a path that all users can read
readonly ROOT_BUILD=/var/cache/caelum-build # the binaries in the root directory of --new-root
readonly UNIFIED=/etc/slurm/unified.so   # exists only with --cgroup v2: hides v1 hierarchies (unified.c)
readonly SLURMSTEPD=/etc/slurm/slurmstepd # exists only with --prolog-delay or --cgroup v2
readonly EMULATOR=$BUILD/nvml-emulator   # the emulator may also be in $BUILD itself
readonly CLEAN_PATH=$EMULATOR:$BUILD:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

die() {
    printf 'devcluster: %s\n' "$*" >&2
    exit 1
}

# load_options DIR: sets the options of `up` as variables.
load_options() {
    [[ -f $1/options ]] || die "$1 is not the directory of a devcluster: the \"options\" file is missing"
    # shellcheck disable=SC1091
    source "$1/options"
}

# process_of DIR: prints the pid of the cluster's init, or fails if init has ended. It also compares the start time
# (field 22 of /proc/PID/stat), because the kernel may have reused the pid.
process_of() {
    local pid started state now
    [[ -s $1/init.pid ]] && read -r pid started <"$1/init.pid" || return 1
    read -r state now < <(process_stat "$pid") || return 1
    [[ $now == "$started" && $state != Z ]] || return 1
    echo "$pid"
}

# process_stat PID: prints the state and the start time of a process. The command name may contain spaces and
# parentheses, so the fields are counted from the last parenthesis.
process_stat() {
    local line fields
    { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
    read -ra fields <<<"${line##*) }"
    echo "${fields[0]} ${fields[19]}"
}

# keyed: succeeds if the agents' configuration sets wake_key, so that the hosts have a key file for notifications.
keyed() { [[ $AGENT == yes ]] && grep -q '^wake_key:' "$AGENT_CONFIG"; }

# watched: succeeds if the agents' configuration sets wake_port or contains learn: true, which means that the cluster
# has a watcher.
watched() { [[ $AGENT == yes ]] && grep -qE '^(wake_port: *[1-9]|learn: true)' "$AGENT_CONFIG"; }

node_names() {
    local i
    for ((i = 1; i <= NODES; i++)); do echo "n$i"; done
}

# nsenter_host HOST: sets NSENTER to the words of a prefix that runs a command on the host. The hosts dbd, ctl and login
# have their own namespaces only after `devcluster upgrade`. Until then, the prefix is empty.
nsenter_host() {
    NSENTER=()
    case $1 in dbd | ctl | login) [[ -s $HOLDERS/$1 ]] || return 0 ;; esac
    [[ -s $HOLDERS/$1 ]] || die "the cluster has no host $1"
    NSENTER=(nsenter --target="$(<"$HOLDERS/$1")" --mount --uts --)
}

# install_driver: adds the emulator's libnvidia-ml.so.1 to the dynamic loader's configuration, so that no program needs
# LD_LIBRARY_PATH. With -X, ldconfig writes no links. Its auxiliary cache goes to the tmpfs.
install_driver() {
    [[ $AGENT == yes ]] || return 0
    printf '%s\n' "$EMULATOR" "$BUILD" >/etc/ld.so.conf.d/00-devcluster.conf
    mount -t tmpfs tmpfs /var/cache/ldconfig
    ldconfig -X
}

# wait_for SECONDS COMMAND...: repeats the command until it succeeds, and fails if this takes longer than SECONDS.
wait_for() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || return 1
        sleep 0.1
    done
}
