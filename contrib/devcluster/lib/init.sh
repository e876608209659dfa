#!/bin/bash
# init.sh is PID 1 of a devcluster. It sets up the private namespaces, starts the daemons in order, and reaps processes
# until it is killed. `devcluster up` starts init.sh with unshare(1) in new mount, PID, UTS, IPC and network namespaces,
# in which the host's /proc is still mounted. `up` reads its standard output until the line "ready" or the end of the
# output.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
source "$here/common.sh"
source "$here/cgroup.sh"
source "$here/slurm-conf.sh"
DIR=$1

# record_self: writes init.sh's own pid to init.pid. This is done first, so that `devcluster down` can end the cluster
# even if `up` fails later, and while the host's /proc is still mounted, which shows the pid in the host's namespace.
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
    ln -s mysqld /run/mariadbd # the MariaDB client library of Debian unstable looks for the socket in /run/mariadbd
    if [[ -d $BUILD_DIR ]]; then
        mount --bind -o ro "$BUILD_DIR" "$BUILD"
        setpriv --reuid=nobody --regid=nogroup --clear-groups test -r "$BUILD" -a -x "$BUILD" ||
            die "users cannot read $BUILD_DIR; run chmod -R a+rX $BUILD_DIR"
    fi
    # The controller's files are on a tmpfs for two reasons: the upper layer of an overlay needs extended attributes,
    # which a container's root file system often does not support, and a database on a tmpfs needs no fsync.
    mount -t tmpfs -o mode=700 tmpfs "$DIR/ctl"
    private_copy /etc
    private_copy /var/lib
    mkdir -p /etc/slurm /etc/caelum /etc/munge /var/lib/caelum /var/lib/slurm /var/lib/munge
    mount -t tmpfs -o mode=755 tmpfs /etc/slurm
    mount -t tmpfs -o mode=755 tmpfs /etc/caelum
}

# private_copy DIRECTORY: mounts an overlay on the directory, so that changes to it are visible only in the mount
# namespace.
private_copy() {
    local layer=$DIR/ctl/layers${1//\//-}
    mkdir -p "$layer/upper" "$layer/work"
    chmod 755 "$layer/upper"
    mount -t overlay -o "lowerdir=$1,upperdir=$layer/upper,workdir=$layer/work" overlay "$1"
}

# private_network: sets up the loopback interface and the host names. Slurm's daemons call getaddrinfo(3) for the
# wildcard address with AI_ADDRCONFIG. If 127.0.0.1 is the machine's only address, this call finds none, and slurmdbd
# ends with "Unable to resolve (null)", so the lo interface gets an additional address from the documentation range.
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

# make_users: creates user1 and user2, with home directories in the cluster's directory. With some sbatch arguments,
# slurmd runs su, which since util-linux 2.42 refuses users without an entry in /etc/shadow.
make_users() {
    local i home
    sed -i '/^user[12]:/d' /etc/passwd /etc/group /etc/shadow
    for i in 1 2; do
        home=$DIR/home/user$i
        echo "user$i:x:$((20000 + i)):$((20000 + i))::$home:/bin/bash" >>/etc/passwd
        echo "user$i:x:$((20000 + i)):" >>/etc/group
        echo "user$i:*:20000::::::" >>/etc/shadow
        mkdir -p "$home"
        chmod 755 "$home"
        chown "$((20000 + i)):$((20000 + i))" "$home"
    done
}

make_munge_key() {
    head -c 128 /dev/urandom >/etc/munge/munge.key
    chmod 400 /etc/munge/munge.key
    chown -R munge:munge /etc/munge /run/munge /var/lib/munge
}

# make_wake_key: creates the key file for notifications, if the agents' configuration sets wake_key. Otherwise, munge
# authenticates notifications. Each node has its own /etc/caelum, into which it copies the key from DIR.
make_wake_key() {
    keyed || return 0
    (umask 077 && head -c 32 /dev/urandom >"$DIR/wake.key")
    install -m 400 "$DIR/wake.key" /etc/caelum/wake.key
}

# make_database: creates MariaDB's data directory. The names of MariaDB's temporary tables contain the process id, which
# repeats in every PID namespace. Without a TMPDIR of its own for each cluster, two clusters that start at the same time
# would therefore use the same files.
make_database() {
    chown mysql:mysql /run/mysqld
    chmod 711 "$DIR/ctl"
    mkdir -p "$DIR/ctl/mysql"
    chown mysql:mysql "$DIR/ctl/mysql"
    TMPDIR=$DIR/ctl/mysql mariadb-install-db --no-defaults --user=mysql --datadir="$DIR/ctl/mysql" --skip-test-db \
        --skip-name-resolve >"$DIR/log/mariadb-install-db.log" 2>&1
}

# make_node nN: creates a node's namespaces, and starts a process that keeps them alive. `unshare --mount=FILE` can keep
# a namespace alive without a process, but sometimes fails with EINVAL (observed on Linux 6.18).
make_node() {
    local answer='' ready
    exec {ready}< <(exec unshare --mount --uts "$here/node.sh" "$DIR" "$1" 2>"$DIR/log/node-$1.log")
    echo $! >"$HOLDERS/$1"
    read -r answer <&"$ready" || true
    [[ $answer == ready ]] || { echo "couldn't create node $1; see node-$1.log" >&2; return 1; }
}

start() {
    "$here/unit.sh" "$DIR" start "$1"
}

fill_accounting() {
    sacctmgr -i add cluster caelum
    sacctmgr -i add account research cluster=caelum
    sacctmgr -i add user user1,user2 account=research cluster=caelum
}

# cluster_registered: succeeds if slurmctld has registered with slurmdbd. slurmctld may answer before that.
cluster_registered() {
    sacctmgr -nP show cluster format=ControlPort | grep -q '^[1-9]'
}

nodes_idle() {
    [[ $(sinfo -h -N -p plain -o '%N %T' | sort) == $(node_names | sed 's/$/ idle/' | sort) ]]
}

start_node() {
    # The agent creates the slots, which slurmd needs when it starts.
    [[ $AGENT == no || $STOCK == yes ]] || start "agent-$1"
    start "slurmd-$1"
}

# start_nodes: starts at most 32 nodes at the same time, because each node must respond within a minute of its start.
start_nodes() {
    local node job jobs=()
    for node in $(node_names); do
        start_node "$node" & jobs+=($!)
        ((${#jobs[@]} < 32)) || { for job in "${jobs[@]}"; do wait "$job"; done; jobs=(); }
    done
    for job in "${jobs[@]}"; do wait "$job"; done
}

start_daemons() {
    local node jobs=() job
    make_database & jobs+=($!)
    for node in $(node_names); do make_node "$node" & jobs+=($!); done
    start munged
    for job in "${jobs[@]}"; do wait "$job" || die "couldn't create the database or a node; see $DIR/log"; done

    start mariadbd
    # With libmariadb 11.8.9, if slurmdbd 24.11 creates its database itself, its next query fails.
    mariadb --socket=/run/mysqld/mysqld.sock -e 'create database slurm_acct_db'
    start slurmdbd
    fill_accounting
    ! watched || start watcher
    start slurmctld
    start_nodes
    wait_for $((30 + NODES)) nodes_idle || { echo "a node did not become idle in time" >&2; sinfo -N >&2; return 1; }
    wait_for 30 cluster_registered || { echo "slurmctld did not register with slurmdbd within 30 s" >&2; return 1; }
}

# bash reads the whole file before it runs main, so that changes to the file do not affect a running cluster.
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
    make_wake_key
    write_configuration
    start_daemons >&2
    echo ready
    exec >&2

    # bash reaps the daemons' orphaned processes. Of the signals sent from inside the PID namespace, PID 1 receives only
    # those for which it has a handler.
    trap 'exit 0' TERM INT
    sleep infinity &
    wait
}

main "${@:2}"
