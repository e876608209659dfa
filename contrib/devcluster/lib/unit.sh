#!/bin/bash
# The daemons of a devcluster, each under a keeper that plays systemd's part: runs in the controller's namespaces.
#   unit.sh DIR start|stop|restart UNIT      unit.sh DIR kill UNIT SIGNAL      unit.sh DIR list
# UNIT is munged, mariadbd, slurmdbd, slurmctld, watcher, slurmd-nN or agent-nN.
#
# The keeper holds a lock on UNIT.lock while it lives; UNIT.pid is its daemon; UNIT.ended is there once a daemon ended
# since the start; UNIT.wanted goes away before a stop.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
source "$here/common.sh"
source "$here/cgroup.sh"
DIR=$1
load_options "$DIR"

# daemon UNIT: becomes it.
daemon() {
    case $1 in
    munged) exec setpriv --reuid=munge --regid=munge --clear-groups munged --foreground ;;
    mariadbd)
        exec mariadbd --no-defaults --user=mysql --datadir="$DIR/ctl/mysql" --tmpdir="$DIR/ctl/mysql" \
            --socket=/run/mysqld/mysqld.sock --pid-file=/run/mysqld/mysqld.pid --skip-networking --skip-name-resolve \
            --performance-schema=OFF --innodb-buffer-pool-size=32M --innodb-log-file-size=8M \
            --innodb-flush-log-at-trx-commit=0 --innodb-lock-wait-timeout=900 --character-set-server=utf8mb4
        ;;
    slurmdbd) exec slurmdbd -D ;;
    slurmctld)
        # slurmctld 26.05 refuses to start again after a kill before it first saved the usage of the associations, 300 s after
        # its start.
        local ignore=()
        [[ -e $DIR/ctl/slurmctld/assoc_usage ]] || ignore=(-i)
        exec slurmctld -D "${ignore[@]}"
        ;;
    slurmd-*)
        local unified=() stepd=()
        if [[ $CGROUP == v2 ]]; then
            own_cgroup "$1.$BASHPID"
            unified=(env "LD_PRELOAD=$UNIFIED")
        fi
        [[ ! -e $SLURMSTEPD ]] || stepd=(-d "$SLURMSTEPD")
        exec_in_node "${1#slurmd-}" "${unified[@]}" slurmd -D -N "${1#slurmd-}" "${stepd[@]}"
        ;;
    watcher)
        mkdir -p /run/caelum-watch # the unit's RuntimeDirectory=
        exec caelumd watch --config /etc/caelum/caelum.yaml
        ;;
    agent-*) exec_in_node "${1#agent-}" env "${AGENT_ENV[@]}" caelumd --config /etc/caelum/caelum.yaml ;;
    esac
}

exec_in_node() {
    nsenter_node "$1"
    shift
    exec "${NSENTER[@]}" "$@"
}

# Slurm's units in Debian have no Restart=; ours have.
restarts() { [[ $1 == agent-* || $1 == watcher ]]; }

# The agent's ExecStopPost.
after_end() {
    [[ $1 != agent-* ]] || (exec_in_node "${1#agent-}" caelumd close) || true
}

keep() {
    local unit=$1 lock pid status
    exec {lock}>"$UNITS/$unit.lock"
    flock -n "$lock" || exit 0
    while :; do
        (daemon "$unit") {lock}>&- &
        pid=$!
        echo "$pid" >"$UNITS/$unit.new" && mv "$UNITS/$unit.new" "$UNITS/$unit.pid"
        status=0
        wait "$pid" || status=$?
        : >"$UNITS/$unit.ended"
        rm -f "$UNITS/$unit.pid"
        echo "--- $unit (pid $pid) ended with status $status" >&2
        after_end "$unit" {lock}>&-
        restarts "$unit" || break
        sleep 0.1 # systemd's RestartSec=
        [[ -e $UNITS/$unit.wanted ]] || break
    done
}

# output_of UNIT: where its stdout and stderr go. Slurm's daemons write a log file with times, which 22.05 does not put
# on stderr, so theirs is a second file: the place for what goes wrong before the log is open.
output_of() {
    case $1 in
    slurm*) echo "$DIR/log/$1.err" ;;
    *) echo "$DIR/log/$1.log" ;;
    esac
}

# kept UNIT: true while its keeper lives.
kept() { ! flock -n "$UNITS/$1.lock" true; }

start() {
    ! kept "$1" || die "$1 runs already"
    rm -f "$UNITS/$1.pid" "$UNITS/$1.ended" "$(agent_socket "$1")"
    : >"$UNITS/$1.wanted"
    setsid "$here/unit.sh" "$DIR" keep "$1" </dev/null >>"$(output_of "$1")" 2>&1 &
    wait_for 60 answers_or_ended "$1" || die "$1 does not answer: see $DIR/log"
    [[ ! -e $UNITS/$1.ended ]] || die "$1 ended at once: see $(output_of "$1")"
}

answers_or_ended() {
    [[ -e $UNITS/$1.ended ]] || { [[ -e $UNITS/$1.pid ]] && answers "$1"; }
}

# answers UNIT: a start returns when others can use the daemon.
answers() {
    case $1 in
    munged) munge -n ;;
    mariadbd) mariadb-admin --no-defaults --socket=/run/mysqld/mysqld.sock ping ;;
    slurmdbd) sacctmgr -n show cluster ;;
    slurmctld) scontrol ping ;;
    slurmd-*) true ;;
    watcher) test -e /run/caelum-watch/poke ;;
    agent-*) test -S "$(agent_socket "$1")" ;;
    esac
}

# agent_socket UNIT: as the controller's side sees it. An agent that was killed leaves it behind.
agent_socket() { echo "$RUN/caelum-${1#agent-}/caelumd.sock"; }

stop() {
    local pid='' asked='' end=$((SECONDS + 60))
    rm -f "$UNITS/$1.wanted"
    until flock -w 0.1 "$UNITS/$1.lock" true; do
        ((SECONDS < end)) || die "$1 does not end"
        # The keeper may just have been between two daemons: each is asked once.
        { read -r pid <"$UNITS/$1.pid"; } 2>/dev/null || continue
        [[ $pid == "$asked" ]] || kill -s TERM "$pid" || true
        asked=$pid
    done
}

signal() {
    local pid
    { read -r pid <"$UNITS/$1.pid"; } 2>/dev/null || die "$1 does not run"
    kill -s "$2" "$pid"
}

list() {
    local path unit
    for path in "$UNITS"/*.lock; do
        unit=$(basename "$path" .lock)
        if [[ -s $UNITS/$unit.pid ]]; then
            printf '%-12s running, pid %s inside\n' "$unit" "$(<"$UNITS/$unit.pid")"
        else
            printf '%-12s not running\n' "$unit"
        fi
    done
}

# check_unit UNIT: refuses what this cluster does not have.
check_unit() {
    case $1 in
    munged | mariadbd | slurmdbd | slurmctld) return 0 ;;
    watcher) watched || die "this cluster has no watcher: its caelum.yaml has no wake_port" && return 0 ;;
    agent-*) [[ $AGENT == yes ]] || die "this cluster runs without agents" ;;&
    # No pipe: with pipefail a grep that has seen enough fails it now and then (node_names' SIGPIPE).
    agent-* | slurmd-*) grep -qx -- "${1#*-}" < <(node_names) && return 0 ;;
    esac
    die "no unit $1"
}

# A function, so that bash has read all of this file before a keeper starts to wait: it may be edited meanwhile.
main() {
    [[ $1 == list ]] || check_unit "${2-}"
    case $1 in
    start | stop | keep) "$1" "$2" ;;
    restart)
        stop "$2"
        start "$2"
        ;;
    kill) signal "$2" "$3" ;;
    list) list ;;
    *) die "unit.sh: no command $1" ;;
    esac
    exit
}

main "${@:2}"
