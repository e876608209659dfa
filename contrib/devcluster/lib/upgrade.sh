#!/bin/bash
# upgrade.sh DIR nN: replaces the programs of a node with --node-root by the controller's programs, as an upgrade of
# packages does. The script runs first in the controller's namespaces, and then in the node's namespaces. upgrade.sh
# does not restart running processes.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
repository=$(realpath "$here/../../..")
source "$here/common.sh"
source "$here/root.sh"

# bash reads the whole file before it runs the function main, because the node moves to another root directory.
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
