#!/bin/bash
# PID 1 of a devcluster: makes the private world, starts the daemons in order, then reaps until it is killed.
# Started by `devcluster up` under unshare(1), standing in new mount, PID, UTS, IPC and network namespaces, but still
# with the host's /proc. Its stdout goes to `up`, which waits for the line "ready" or for the end of file.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
source "$here/common.sh"
source "$here/cgroup.sh"
source "$here/slurm-conf.sh"
DIR=$1

# The first thing done: from here on `devcluster down` can end all of it, whatever happens to `up`.
# The host's /proc still stands here and shows this process with its pid outside.
record_self() {
    local line pid fields
    read -r line </proc/self/stat
    pid=${line%% *}
    read -ra fields <<<"${line##*) }"
    echo "$pid ${fields[19]}" >"$DIR/init.pid"
}

private_mounts() {
    mount -t proc proc /proc
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir -p "$UNITS" "$HOLDERS" "$BUILD" /run/munge /run/mysqld
    ln -s mysqld /run/mariadbd # where the client library of Debian unstable looks for the socket
    if [[ -d $BUILD_DIR ]]; then
        mount --bind -o ro "$BUILD_DIR" "$BUILD"
        setpriv --reuid=nobody --regid=nogroup --clear-groups test -r "$BUILD" -a -x "$BUILD" ||
            die "users cannot read $BUILD_DIR: chmod it"
    fi
    # A tmpfs holds what the controller writes: an overlay needs an upper layer with xattrs, which an overlay (a
    # container's root) does not offer, and a database on it needs no fsync.
    mount -t tmpfs -o mode=700 tmpfs "$DIR/ctl"
    private_copy /etc
    private_copy /var/lib
    mkdir -p /etc/slurm /etc/caelum /etc/munge /var/lib/caelum /var/lib/slurm /var/lib/munge
    mount -t tmpfs -o mode=755 tmpfs /etc/slurm
    mount -t tmpfs -o mode=755 tmpfs /etc/caelum
}

# private_copy FOLDER: writes to it stay in the namespace.
private_copy() {
    local layer=$DIR/ctl/layers${1//\//-}
    mkdir -p "$layer/upper" "$layer/work"
    chmod 755 "$layer/upper"
    mount -t overlay -o "lowerdir=$1,upperdir=$layer/upper,workdir=$layer/work" overlay "$1"
}

# Slurm's daemons ask getaddrinfo(3) for the wildcard address with AI_ADDRCONFIG, which finds none where 127.0.0.1 is
# the only address of the machine; slurmdbd then ends with "Unable to resolve (null)". So lo gets one more, of the
# range that is kept for documentation.
private_network() {
    local node
    ip link set lo up
    ip address add 192.0.2.1/32 dev lo
    hostname ctl
    {
        echo "127.0.0.1 localhost ctl"
        for node in $(node_names); do echo "127.0.0.1 $node"; done
    } >/etc/hosts
}

# Ordinary users with homes that outlive nothing: user1 and user2.
make_users() {
    local i home
    sed -i '/^user[12]:/d' /etc/passwd /etc/group
    for i in 1 2; do
        home=$DIR/home/user$i
        echo "user$i:x:$((20000 + i)):$((20000 + i))::$home:/bin/bash" >>/etc/passwd
        echo "user$i:x:$((20000 + i)):" >>/etc/group
        mkdir -p "$home"
        chmod 755 "$home"
        chown "$((20000 + i)):$((20000 + i))" "$home"
    done
}

# The dynamic loader finds the emulator's libnvidia-ml.so.1 as it would find an installed driver's: no binary needs
# LD_LIBRARY_PATH. Besides /etc/ld.so.cache ldconfig writes links (not with -X) and a cache of its own.
install_driver() {
    [[ $AGENT == yes ]] || return 0
    printf '%s\n' "$EMULATOR" "$BUILD" >/etc/ld.so.conf.d/00-devcluster.conf
    mount -t tmpfs tmpfs /var/cache/ldconfig
    ldconfig -X
}

make_munge_key() {
    head -c 128 /dev/urandom >/etc/munge/munge.key
    chmod 400 /etc/munge/munge.key
    chown -R munge:munge /etc/munge /run/munge /var/lib/munge
}

# The key of the datagrams between watcher and agents. The nodes, which do not see this /etc/caelum, copy theirs from DIR.
make_wake_key() {
    (umask 077 && head -c 32 /dev/urandom >"$DIR/wake.key")
    install -m 400 "$DIR/wake.key" /etc/caelum/wake.key
}

# Without a folder of its own for temporary tables, two databases that are made at once on one machine take each other's:
# the tables' names hold a process id, and those repeat in every PID namespace.
make_database() {
    chown mysql:mysql /run/mysqld
    chmod 711 "$DIR/ctl"
    mkdir -p "$DIR/ctl/mysql"
    chown mysql:mysql "$DIR/ctl/mysql"
    TMPDIR=$DIR/ctl/mysql mariadb-install-db --no-defaults --user=mysql --datadir="$DIR/ctl/mysql" --skip-test-db \
        --skip-name-resolve >"$DIR/log/mariadb-install-db.log" 2>&1
}

# A process holds the node's namespaces. Binding them to files, unshare --mount=FILE, would need none, but
# fails at random with EINVAL (seen on Linux 6.18).
make_node() {
    local answer='' ready
    exec {ready}< <(exec unshare --mount --uts "$here/node.sh" "$DIR" "$1" 2>"$DIR/log/node-$1.log")
    echo $! >"$HOLDERS/$1"
    read -r answer <&"$ready" || true
    [[ $answer == ready ]] || { echo "node $1 cannot be made: see node-$1.log" >&2; return 1; }
}

start() {
    "$here/unit.sh" "$DIR" start "$1"
}

fill_accounting() {
    sacctmgr -i add cluster caelum
    sacctmgr -i add account research cluster=caelum
    sacctmgr -i add user user1,user2 account=research cluster=caelum
}

# A slurmctld that answers is not yet one that slurmdbd knows; "up" waits for both.
cluster_registered() {
    sacctmgr -nP show cluster format=ControlPort | grep -q '^[1-9]'
}

nodes_idle() {
    local node
    for node in $(node_names); do
        [[ $(sinfo -h -n "$node" -p plain -o %T) == idle ]] || return 1
    done
}

start_node() {
    [[ $AGENT == no ]] || start "agent-$1" # it makes the slots that slurmd wants to see
    start "slurmd-$1"
}

start_daemons() {
    local node jobs=() job
    make_database & jobs+=($!)
    for node in $(node_names); do make_node "$node" & jobs+=($!); done
    start munged
    for job in "${jobs[@]}"; do wait "$job" || die "the database or a node cannot be made: see $DIR/log"; done

    start mariadbd
    # If slurmdbd 24.11 creates its database itself, its next query fails with libmariadb 11.8.9.
    mariadb --socket=/run/mysqld/mysqld.sock -e 'create database slurm_acct_db'
    start slurmdbd
    fill_accounting
    ! watched || start watcher
    start slurmctld
    jobs=()
    for node in $(node_names); do start_node "$node" & jobs+=($!); done
    for job in "${jobs[@]}"; do wait "$job"; done
    wait_for 30 nodes_idle || { echo "the nodes do not become idle" >&2; sinfo -N >&2; return 1; }
    wait_for 30 cluster_registered || { echo "slurmctld is not registered with slurmdbd" >&2; return 1; }
}

# A function, so that bash has read all of this file by now: it may be edited while the cluster runs.
main() {
    load_options "$DIR"
    if [[ ${1-} != inside ]]; then
        record_self
        [[ $CGROUP == none ]] || { enter_cgroups "$CGROUP" "$CGROUP_NAME" && exec unshare --cgroup "$0" "$DIR" inside; }
    fi
    [[ $CGROUP == none ]] || own_cgroups "$CGROUP"
    private_mounts
    private_network
    make_users
    install_driver
    make_munge_key
    ! watched || make_wake_key
    write_configuration
    start_daemons >&2
    echo ready
    exec >&2

    # bash reaps what daemons leave behind; a signal other than KILL never reaches a PID 1 that does not ask for it.
    trap 'exit 0' TERM INT
    sleep infinity &
    wait
}

main "${@:2}"
