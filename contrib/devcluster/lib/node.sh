#!/bin/bash
# node.sh sets up the mount and UTS namespaces of one node, and keeps both alive until it is killed. init.sh starts it
# in the new namespaces. The node writes to its own tmpfs, and sees neither the controller's files nor other nodes'.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
source "$here/common.sh"
source "$here/slurm-conf.sh"
DIR=$1
NODE=$2
load_options "$DIR"

# private_run: mounts a new /run with munge's socket and the binaries. The node's /run/caelum appears as
# /run/devcluster/caelum-nN on the controller, so that unit.sh can wait for the agent's socket.
private_run() {
    local new=$RUN/run-$NODE shared=$RUN/caelum-$NODE
    mkdir -p "$new"
    mount -t tmpfs -o mode=755 tmpfs "$new"
    mkdir -p "$new/munge" "$new/devcluster/build"
    mount --bind /run/munge "$new/munge"
    mount --bind "$BUILD" "$new/devcluster/build"
    if [[ $AGENT == yes ]]; then
        mkdir -p "$new/caelum"
        mount --bind "$shared" "$new/caelum"
    fi
    mount --no-mtab --move "$new" /run
}

# private_dev: mounts a new /dev for the node's own /dev/caelum and /dev/nvidia-caps. The machine has only one devtmpfs,
# so directories on it would be shared by all nodes and outlive the cluster.
private_dev() {
    local new=/run/dev name
    mkdir "$new"
    mount -t tmpfs -o mode=755 tmpfs "$new"
    for name in null zero full random urandom tty; do cp -a "/dev/$name" "$new/$name"; done
    mkdir "$new/pts" "$new/shm" "$new/caelum"
    mount --rbind /dev/pts "$new/pts"
    mount --bind /dev/shm "$new/shm"
    ln -s pts/ptmx "$new/ptmx"
    ln -s /proc/self/fd "$new/fd"
    ln -s fd/0 "$new/stdin"
    ln -s fd/1 "$new/stdout"
    ln -s fd/2 "$new/stderr"
    mount --no-mtab --move "$new" /dev
    rmdir "$new"
}

private_state() {
    local path
    for path in /var/lib/caelum /var/lib/slurm /etc/caelum; do
        mount -t tmpfs -o mode=755 tmpfs "$path"
    done
    chmod 700 /var/lib/caelum
    for path in slurmdbd.conf job_submit.lua; do
        [[ ! -e /etc/slurm/$path ]] || mount --bind /dev/null "/etc/slurm/$path"
    done
    umount "$DIR/ctl"
}

install_agent() {
    local new=/run/nvml-emulator/proc
    mkdir -p "$new"
    # All nodes share the machine's network namespace, so each agent opens the wake port on its own address.
    { cat "$AGENT_CONFIG" && echo "wake_address: $(address_of "$NODE")"; } >/etc/caelum/caelum.yaml
    ! keyed || install -m 400 "$DIR/wake.key" /etc/caelum/wake.key
    nvml-emulator init --board "$(board_of "$NODE")" --gpus "$GPUS" --proc-root "$new" \
        --modify-device-files "$MODIFY_DEVICE_FILES" --memory-limits "$MEMORY_LIMITS" ${NVLINK:+--mig off --nvlink "$NVLINK"}
    mount --bind "$new/devices" /proc/devices
    mount --bind "$new/driver" /proc/driver
}

# make_slots: creates the slots on a node without an agent. The slots must be character devices, because slurmd does not
# set CUDA_VISIBLE_DEVICES for regular files.
make_slots() {
    local i
    for ((i = 0; i < $(slots_of "$NODE"); i++)); do mknod -m 444 "/dev/caelum/slot$i" c 42 "$i"; done
}

# bash reads the whole file before it runs main, because `devcluster upgrade` may replace the node's root directory.
main() {
    hostname "$NODE"
    [[ $AGENT == no ]] || mkdir -p "$RUN/caelum-$NODE"
    private_run
    private_dev
    private_state
    if [[ $AGENT == yes ]]; then install_agent >&2; else make_slots; fi
    echo ready
    exec sleep infinity >&2
}

main
