#!/bin/bash
# unit.sh starts and stops the daemons of a devcluster. Each daemon runs under a keeper, a process that replaces
# systemd. unit.sh runs in the controller's namespaces.
#
#   unit.sh DIR start|stop|restart UNIT      unit.sh DIR kill UNIT SIGNAL      unit.sh DIR list
# UNIT is munged, mariadbd, slurmdbd, slurmctld, watcher, watcher2, slurmd-nN or agent-nN. `up` does not start watcher2,
# the watcher on the host of a backup controller, which needs --conf "SlurmctldHost=ctl2(127.0.0.2)" and --conf
# CommunicationParameters=NoCtldInAddrAny. If the variable REBOOTED is not empty, slurmd reports a reboot of its node,
# for which slurmctld waits after ResumeProgram.
#
# Each unit has four files. The keeper holds a lock on UNIT.lock until it ends. UNIT.pid contains the daemon's pid.
# UNIT.ended exists if a daemon has ended since the unit was started. UNIT.wanted exists until the unit is stopped.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
source "$here/common.sh"
source "$here/cgroup.sh"
DIR=$1
load_options "$DIR"

# daemon UNIT: executes the unit's daemon in place of this shell.
daemon() {
    case $1 in
    munged) exec setpriv --reuid=munge --regid=munge --clear-groups munged --foreground ;;
    mariadbd)
        exec mariadbd --no-defaults --user=mysql --datadir="$DIR/ctl/mysql" --tmpdir="$DIR/ctl/mysql" \
            --socket=/run/mysqld/mysqld.sock --pid-file=/run/mysqld/mysqld.pid --skip-networking --skip-name-resolve \
            --performance-schema=OFF --innodb-buffer-pool-size=32M --innodb-log-file-size=8M \
            --innodb-flush-log-at-trx-commit=0 --innodb-lock-wait-timeout=900 --character-set-server=utf8mb4 \
            --loose-innodb-snapshot-isolation=OFF # with ON, slurmdbd 26.05 can end; old MariaDBs have no such option
        ;;
    slurmdbd) exec_on_host dbd slurmdbd -D ;;
    slurmctld)
        # slurmctld 26.05 first saves the associations' usage 300 s after its start. If it is killed before that, it
        # refuses to restart.
        local ignore=()
        [[ -e $DIR/ctl/slurmctld/assoc_usage ]] || ignore=(-i)
        exec_on_host ctl slurmctld -D "${ignore[@]}"
        ;;
    slurmd-*)
        local unified=() stepd=()
        if [[ $CGROUP == v2 ]]; then
            own_cgroup "$1.$BASHPID"
            unified=(env "LD_PRELOAD=$UNIFIED")
        fi
        [[ ! -e $SLURMSTEPD ]] || stepd=(-d "$SLURMSTEPD")
        [[ -z ${REBOOTED-} ]] || stepd+=(-b)
        exec_on_host "${1#slurmd-}" "${unified[@]}" slurmd -D -N "${1#slurmd-}" "${stepd[@]}"
        ;;
    watcher)
        mkdir -p /run/caelum-watch # the unit's RuntimeDirectory=
        exec_on_host ctl env "${AGENT_ENV[@]}" caelum-watch --config /etc/caelum/caelum.yaml
        ;;
    watcher2)
        mkdir -p "$WATCHER2"/{run,lib,etc} /run/caelum-watch
        cp -a /etc/caelum/. "$WATCHER2/etc"
        sed -i 's/^wake_address: .*/wake_address: 127.0.0.2/' "$WATCHER2/etc/caelum.yaml"
        # shellcheck disable=SC2016
        exec unshare --mount --uts bash -ec 'hostname ctl2
            mount --bind "$1/run" /run/caelum-watch
            mount --bind "$1/lib" /var/lib/caelum
            mount --bind "$1/etc" /etc/caelum
            exec env "${@:2}" caelum-watch' watcher2 "$WATCHER2" "${AGENT_ENV[@]}"
        ;;
    agent-*) exec_on_host "${1#agent-}" env "${AGENT_ENV[@]}" caelumd --config /etc/caelum/caelum.yaml ;;
    esac
}

exec_on_host() {
    nsenter_host "$1"
    shift
    exec "${NSENTER[@]}" "$@"
}

# restarts UNIT: succeeds if the keeper restarts the daemon when it ends. Caelum's units set Restart=, but Debian's
# Slurm units do not.
restarts() { [[ $1 == agent-* || $1 == watcher* ]]; }

# after_end UNIT: runs the ExecStopPost= command from the agent's unit file.
after_end() {
    [[ $1 != agent-* ]] || (exec_on_host "${1#agent-}" caelumd close) || true
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

# output_of UNIT: prints the path of the file that receives the daemon's standard output and standard error. Slurm's
# daemons write their logs to separate files, because Slurm 22.05 writes no times to standard error, which receives only
# errors from before the log is opened.
output_of() {
    case $1 in
    slurm*) echo "$DIR/log/$1.err" ;;
    *) echo "$DIR/log/$1.log" ;;
    esac
}

# kept UNIT: succeeds while the unit's keeper is running.
kept() { ! flock -n "$UNITS/$1.lock" true; }

start() {
    ! kept "$1" || die "$1 is already running"
    rm -f "$UNITS/$1.pid" "$UNITS/$1.ended" "$(agent_socket "$1")"
    : >"$UNITS/$1.wanted"
    setsid "$here/unit.sh" "$DIR" keep "$1" </dev/null >>"$(output_of "$1")" 2>&1 &
    wait_for 60 answers_or_ended "$1" || die "$1 did not answer within 60 s; see $DIR/log"
    [[ ! -e $UNITS/$1.ended ]] || die "$1 ended during its start; see $(output_of "$1")"
}

answers_or_ended() {
    [[ -e $UNITS/$1.ended ]] || { [[ -e $UNITS/$1.pid ]] && answers "$1"; }
}

# answers UNIT: succeeds if the daemon answers requests.
answers() {
    case $1 in
    munged) munge -n ;;
    mariadbd) mariadb-admin --no-defaults --socket=/run/mysqld/mysqld.sock ping ;;
    slurmdbd) sacctmgr -n show cluster ;;
    slurmctld) scontrol ping ;;
    slurmd-*) true ;;
    watcher) test -e /run/caelum-watch/poke ;;
    watcher2) test -e "$WATCHER2/run/poke" ;;
    agent-*) test -S "$(agent_socket "$1")" ;;
    esac
}

# agent_socket UNIT: prints the path of the agent's socket in the controller's namespaces. A killed agent does not
# remove its socket.
agent_socket() { echo "$RUN/caelum-${1#agent-}/caelumd.sock"; }

stop() {
    local pid='' asked='' end=$((SECONDS + 60))
    rm -f "$UNITS/$1.wanted"
    until flock -w 0.1 "$UNITS/$1.lock" true; do
        ((SECONDS < end)) || die "$1 did not end within 60 s of SIGTERM"
        # The keeper may be restarting the daemon, so stop sends SIGTERM once to each new pid.
        { read -r pid <"$UNITS/$1.pid"; } 2>/dev/null || continue
        [[ $pid == "$asked" ]] || kill -s TERM "$pid" || true
        asked=$pid
    done
}

signal() {
    local pid
    { read -r pid <"$UNITS/$1.pid"; } 2>/dev/null || die "$1 is not running"
    kill -s "$2" "$pid"
}

list() {
    local path unit
    for path in "$UNITS"/*.lock; do
        unit=$(basename "$path" .lock)
        if [[ -s $UNITS/$unit.pid ]]; then
            printf '%-12s running, pid %s in the cluster\n' "$unit" "$(<"$UNITS/$unit.pid")"
        else
            printf '%-12s not running\n' "$unit"
        fi
    done
}

# check_unit UNIT: ends unit.sh with an error if the cluster does not have the unit.
check_unit() {
    case $1 in
    munged | mariadbd | slurmdbd | slurmctld) return 0 ;;
    watcher | watcher2) watched || die "the cluster has no watcher: its caelum.yaml sets neither wake_port nor learn: true" && return 0 ;;
    agent-*) [[ $AGENT == yes ]] || die "the cluster has no agents: devcluster up was run with --no-agent" ;;&
    # A pipe from node_names to grep -q can fail: grep -q ends at the first match, node_names gets SIGPIPE, and pipefail
    # reports the signal. That is why grep reads from a process substitution.
    agent-* | slurmd-*) grep -qx -- "${1#*-}" < <(node_names) && return 0 ;;
    esac
    die "the cluster has no unit $1"
}

# bash reads the whole file before it runs main, so changes to the file do not affect a running keeper.
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
    *) die "unit.sh: unknown command $1" ;;
    esac
    exit
}

main "${@:2}"
