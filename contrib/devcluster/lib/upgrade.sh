#!/bin/bash
# upgrade.sh DIR HOST: replaces a host's programs with those in --new-root, as a package upgrade does. HOST is dbd, ctl,
# login or a node. The script runs first in the controller's namespaces, and then in the host's. It does not restart any
# processes.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
repository=$(realpath "$here/../../..")
source "$here/common.sh"

# enter_new_root: makes --new-root the root directory of the host's mount namespace and of all processes in it. The host
# uses an overlay, so that --new-root does not change. The host keeps its configuration, state, devices and users.
# Running processes keep using the files that they have opened or mapped.
enter_new_root() {
    local scratch=$RUN/root new=$RUN/root/new path
    mount --bind -o ro "$NEW_ROOT$ROOT_BUILD" "$BUILD"
    mkdir -p "$scratch"
    mount -t tmpfs -o mode=755 tmpfs "$scratch"
    mkdir -m 755 "$scratch/upper" "$scratch/work" "$new"
    mount -t overlay -o "lowerdir=$NEW_ROOT,upperdir=$scratch/upper,workdir=$scratch/work" overlay "$new"
    for path in /proc /sys /dev /run /tmp "$repository" "$DIR" /etc/slurm /etc/caelum /etc/munge /var/lib/caelum \
        /var/lib/caelum-watch /var/lib/slurm; do
        [[ -e $path ]] || continue
        mkdir -p "$new$path"
        mount --rbind "$path" "$new$path"
    done
    cp /etc/passwd /etc/group /etc/shadow /etc/hosts "$new/etc"
    mkdir -p "$new/.old"
    cd "$new"
    pivot_root . .old
    cd /
    umount -l /.old
    rmdir /.old
    umount -l "$scratch" # hides the overlay's directories; the root directory still uses them
    install_driver
}

# upgrade_node nN: moves an existing host to the new root directory.
upgrade_node() {
    nsenter_host "$1"
    "${NSENTER[@]}" "$here/upgrade.sh" "$DIR" "$1" inside
}

# upgrade_controller HOST: creates a mount namespace for dbd, ctl or login, and a process that keeps it alive. Until
# then, the host shares the controller's namespaces.
upgrade_controller() {
    local answer='' ready
    exec {ready}< <(exec setsid unshare --mount --uts "$here/upgrade.sh" "$DIR" "$1" hold 2>"$DIR/log/host-$1.log" </dev/null)
    echo $! >"$HOLDERS/$1.new"
    read -r answer <&"$ready" || true
    [[ $answer == ready ]] || die "couldn't upgrade $1; see $DIR/log/host-$1.log"
    mv "$HOLDERS/$1.new" "$HOLDERS/$1"
}

# bash reads the whole file before it runs main, because the host moves to another root directory.
main() {
    DIR=$1
    load_options "$DIR"
    case ${3-} in
    inside) enter_new_root ;;
    hold)
        enter_new_root >&2
        echo ready
        exec sleep infinity >&2
        ;;
    *)
        [[ ! -e $HOLDERS/$2.upgraded ]] || die "$2 is already upgraded"
        case $2 in
        dbd | ctl | login) upgrade_controller "$2" ;;
        *) upgrade_node "$2" ;;
        esac
        : >"$HOLDERS/$2.upgraded"
        ;;
    esac
    exit
}

main "$@"
