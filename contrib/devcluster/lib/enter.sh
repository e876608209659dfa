#!/bin/bash
# enter.sh NODE USER COMMAND ARGUMENTS...: runs a command in a cluster whose namespaces nsenter(1) has just joined,
# on the login node (NODE empty) or on a node, as a user, in that user's home and with a fresh environment.
# The command dies with the `devcluster exec` that wanted it.
set -euo pipefail
source "$(dirname "$(realpath "$0")")/common.sh"
node=$1
user=$2
shift 2

IFS=: read -r _ _ uid gid _ home shell < <(getent passwd "$user") || die "no user $user in the cluster"
NSENTER=()
[[ -z $node ]] || nsenter_node "$node"
exec "${NSENTER[@]}" \
    setpriv --reuid="$uid" --regid="$gid" --init-groups --pdeathsig=TERM -- \
    env -i --chdir="$home" HOME="$home" USER="$user" LOGNAME="$user" SHELL="$shell" \
    PATH="$CLEAN_PATH" LANG=C.UTF-8 ${TERM:+TERM="$TERM"} "$@"
