#!/bin/bash
# upgrade.sh DIR nN: replaces the programs of a node of --node-root by those of the controller, as an upgrade of its
# packages does. The script runs in the controller's namespaces, and then a second time in the node's. Running processes
# are not restarted.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
repository=$(realpath "$here/../../..")
source "$here/common.sh"
source "$here/root.sh"

# main is a function so that bash reads the whole file before the node moves to another root directory.
main() {
    DIR=$1
    load_options "$DIR"
    if [[ ${3-} == inside ]]; then
        mountpoint -q "$FIRST_ROOT" || die "$2 already runs from the controller's root directory"
        return_to_first_root
    else
        nsenter_node "$2"
        exec "${NSENTER[@]}" "$here/upgrade.sh" "$DIR" "$2" inside
    fi
}

main "$@"
