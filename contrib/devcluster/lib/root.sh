# Functions for the root directory of a node with --node-root. node.sh and upgrade.sh source root.sh, and run in the
# node's namespaces.
# shellcheck shell=bash disable=SC2154 # the scripts that source this file set $repository

readonly FIRST_ROOT=$RUN/root # where a node with --node-root mounts the controller's root directory

# leave_first_root: moves the node from the controller's root directory to the root directory of --node-root. The
# binaries of the new root directory are mounted over the controller's binaries.
leave_first_root() {
    mkdir -p "$FIRST_ROOT"
    mount --bind / "$FIRST_ROOT"
    mount --bind "$NODE_ROOT$ROOT_BUILD" "$BUILD"
    enter_root "$NODE_ROOT"
}

# return_to_first_root: reverses leave_first_root.
return_to_first_root() {
    umount -l "$BUILD" # the agent may still use the mounted binaries
    enter_root "$FIRST_ROOT"
    umount -l "$FIRST_ROOT"
}

# enter_root ROOT: makes ROOT the root directory of the node's mount namespace and of all processes in the namespace.
# The node uses an overlay, so that ROOT does not change. The node keeps its configuration, state, devices and users.
# Running processes continue to use the files that they have opened or mapped, as after an upgrade of packages.
enter_root() {
    local scratch=$DIR/ctl new=$DIR/ctl/root path # DIR/ctl is empty on a node
    mount -t tmpfs -o mode=755 tmpfs "$scratch"
    mkdir -m 755 "$scratch/upper" "$scratch/work" "$new"
    mount -t overlay -o "lowerdir=$1,upperdir=$scratch/upper,workdir=$scratch/work" overlay "$new"
    for path in /proc /sys /dev /run; do mount --rbind "$path" "$new$path"; done
    for path in /tmp "$repository" "$DIR"; do
        mkdir -p "$new$path"
        mount --bind "$path" "$new$path"
    done
    for path in /etc/slurm /etc/caelum /etc/munge /var/lib/caelum /var/lib/slurm; do
        mkdir -p "$new$path"
        mount --rbind "$path" "$new$path"
    done
    cp /etc/passwd /etc/group /etc/hosts "$new/etc"
    mkdir -p "$new/.old"
    cd "$new" || return
    pivot_root . .old
    cd /
    umount -l /.old
    rmdir /.old
    install_driver
}
