#!/bin/bash
# enter.sh HOST USER COMMAND ARGUMENTS...: runs a command as a user on a host, or on the login node if HOST is empty.
# The command runs in the user's home directory, with a new environment. When `devcluster exec` ends, the kernel sends
# SIGTERM to the command. `devcluster exec` starts enter.sh with nsenter(1) in the cluster's namespaces.
set -euo pipefail
source "$(dirname "$(realpath "$0")")/common.sh"
host=${1:-login}
user=$2
shift 2

IFS=: read -r _ _ uid gid _ home shell < <(getent passwd "$user") || die "the cluster has no user $user"
nsenter_host "$host"
exec "${NSENTER[@]}" \
    setpriv --reuid="$uid" --regid="$gid" --init-groups --pdeathsig=TERM -- \
    env -i --chdir="$home" HOME="$home" USER="$user" LOGNAME="$user" SHELL="$shell" \
    PATH="$CLEAN_PATH" LANG=C.UTF-8 ${TERM:+TERM="$TERM"} "$@"
