# Shared by every devcluster script: paths, messages, and how a process is known for sure.
# shellcheck shell=bash

readonly RUN=/run/devcluster            # exists only inside the namespaces
readonly UNITS=$RUN/units               # one folder of small files for the daemons' keepers
readonly HOLDERS=$RUN/holders           # nN: the pid of the process that holds the node's namespaces
readonly BUILD=$RUN/build               # the shipped binaries, readable for users wherever the checkout stands
readonly UNIFIED=/etc/slurm/unified.so   # with --cgroup v2: hides version 1's hierarchies (unified.c)
readonly SLURMSTEPD=/etc/slurm/slurmstepd # there with --prolog-delay and --cgroup v2
readonly EMULATOR=$BUILD/nvml-emulator   # where its Makefile puts its outputs; $BUILD itself is looked at too
readonly CLEAN_PATH=$EMULATOR:$BUILD:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

die() {
    printf 'devcluster: %s\n' "$*" >&2
    exit 1
}

# load_options DIR: what `up` was told, as plain variables.
load_options() {
    [[ -f $1/options ]] || die "$1 is no devcluster (it has no file \"options\")"
    # shellcheck disable=SC1091
    source "$1/options"
}

# process_of DIR: prints the pid of the cluster's init, fails when it is gone. A pid alone could have been given
# to another process since, so it counts only together with its start time (field 22 of proc(5) stat).
process_of() {
    local pid started state now
    [[ -s $1/init.pid ]] && read -r pid started <"$1/init.pid" || return 1
    read -r state now < <(process_stat "$pid") || return 1
    [[ $now == "$started" && $state != Z ]] || return 1
    echo "$pid"
}

# process_stat PID: prints state and start time. The command's name may hold blanks and brackets: skip to the last one.
process_stat() {
    local line fields
    { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
    read -ra fields <<<"${line##*) }"
    echo "${fields[0]} ${fields[19]}"
}

# watched: true if the agents are told to look by a watcher, as their configuration says.
watched() { [[ $AGENT == yes ]] && grep -q '^wake_port: *[1-9]' "$AGENT_CONFIG"; }

node_names() {
    local i
    for ((i = 1; i <= NODES; i++)); do echo "n$i"; done
}

# nsenter_node nN: the words before a command that is to run on a node.
nsenter_node() {
    [[ -s $HOLDERS/$1 ]] || die "no node $1 in the cluster"
    NSENTER=(nsenter --target="$(<"$HOLDERS/$1")" --mount --uts --)
}

# wait_for SECONDS COMMAND...: true as soon as the command succeeds.
wait_for() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || return 1
        sleep 0.1
    done
}
