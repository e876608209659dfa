# The configuration of a devcluster. Sourced by init.sh, which writes it, and node.sh.
# shellcheck shell=bash

BOARDS_TXT=$(dirname "${BASH_SOURCE[0]}")/../../../internal/mig/boards.txt

# board_of nN: --board may list several; node N gets the N-th, the nodes beyond the list its last.
board_of() {
    local boards i=${1#n}
    IFS=, read -ra boards <<<"$BOARD"
    ((i <= ${#boards[@]})) || i=${#boards[@]}
    echo "${boards[i - 1]}"
}

# board_type BOARD: the Type of its slots in gres.conf.
board_type() {
    awk -v board="$1" '$1 == "board" && $2 == board { print $4 }' "$BOARDS_TXT"
}

# board_profiles BOARD: lines "profile most-instances-per-GPU", smallest first. Variants with a media engine or
# graphics (1g.5gb+me) are left out: they share their base profile's room and the demo does not offer them.
board_profiles() {
    awk -v board="$1" '$1 == "board" { here = $2 == board }
        here && $1 == "profile" && $2 ~ /^[0-9]+g\.[0-9]+gb$/ { print $2, $6 }' "$BOARDS_TXT"
}

# slots_of nN: as many as its GPUs can hold instances.
slots_of() {
    local most
    most=$(board_profiles "$(board_of "$1")" | awk '$2 > most { most = $2 } END { print most }')
    echo $((GPUS * most))
}

# mig_total nN: the constant total of gres/mig. It has to be at least twice the most instances the node can hold;
# a changed total would drain the node when its slurmd registers again.
mig_total() {
    echo $((4 * $(slots_of "$1")))
}

# gres_closed nN: everything the node has, with nothing on offer.
gres_closed() {
    local board profile
    board=$(board_of "$1")
    printf 'gpu:%s:%d' "$(board_type "$board")" "$(slots_of "$1")"
    while read -r profile _; do printf ',mig:%s:0' "$profile"; done < <(board_profiles "$board")
    printf ',mig:closed:%d\n' "$(mig_total "$1")"
}

# gres_catalogue nN: everything a node like this could ever offer.
gres_catalogue() {
    local board profile most
    board=$(board_of "$1")
    printf 'gpu:%s:%d' "$(board_type "$board")" "$(slots_of "$1")"
    while read -r profile most; do printf ',mig:%s:%d' "$profile" $((GPUS * most)); done < <(board_profiles "$board")
    echo
}

all_profiles() {
    local node
    for node in $(node_names); do board_profiles "$(board_of "$node")"; done | awk '!seen[$1]++ { print $1 }'
}

# mig_slurm_conf, mig_gres_conf: what Caelum needs in slurm.conf and gres.conf, and nothing else: this is the seam
# at which `caelum slurm-config` can take over.
mig_slurm_conf() {
    local node profile tres=gres/gpu,gres/mig
    for profile in $(all_profiles); do tres+=,gres/mig:$profile; done
    cat <<END
GresTypes=gpu,mig
AccountingStorageTRES=$tres
PrologFlags=Alloc
BatchStartTimeout=120
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_continue
END
    [[ ! -e /etc/slurm/job_submit.lua ]] || echo "JobSubmitPlugins=lua"
    # Every node gets more CPUs and memory than the machine has (config_overrides): GPUs run out first, as they should.
    for node in $(node_names); do
        echo "NodeName=$node NodeAddr=127.0.0.1 Port=$((7000 + ${node#n})) CPUs=64 RealMemory=256000 Gres=$(gres_closed "$node")"
    done
    # Never up, and refused at port 1: they make slurmctld accept requests that nothing offers just now.
    for node in $(node_names); do
        echo "NodeName=mig-catalog${node#n} NodeAddr=127.0.0.1 Port=1 State=DOWN Reason=\"MIG catalogue\" CPUs=64 RealMemory=256000 Gres=$(gres_catalogue "$node")"
    done
    echo "PartitionName=gpu Default=YES Nodes=n[1-$NODES],mig-catalog[1-$NODES] MaxTime=INFINITE State=UP"
    # The same nodes without Caelum's rules at submission.
    echo "PartitionName=plain Nodes=n[1-$NODES] MaxTime=INFINITE State=UP"
}

mig_gres_conf() {
    local node
    echo "AutoDetect=off"
    for node in $(node_names); do
        echo "NodeName=$node Name=gpu Type=$(board_type "$(board_of "$node")") File=/dev/caelum/slot[0-$(($(slots_of "$node") - 1))] Flags=nvidia_gpu_env"
        echo "NodeName=$node Name=mig Type=closed Count=$(mig_total "$node") Flags=CountOnly"
    done
}

base_slurm_conf() {
    cat <<END
ClusterName=caelum
SlurmctldHost=ctl(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=$DIR/ctl/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=$DIR/log/slurmctld.log
SlurmctldDebug=verbose
SlurmdLogFile=$DIR/log/slurmd-%n.log
SlurmdDebug=verbose
LogTimeFormat=iso8601_ms
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=300
JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoreFlags=job_comment
END
}

slurmdbd_conf() {
    cat <<END
AuthType=auth/munge
DbdHost=localhost
DbdAddr=127.0.0.1
SlurmUser=root
LogFile=$DIR/log/slurmdbd.log
DebugLevel=info
LogTimeFormat=iso8601_ms
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
END
}

# The first table: nothing is known about any job yet, so every request gets the largest profile.
decisions() {
    local profile
    echo "caelum-decisions 1 1"
    echo "partition gpu"
    for profile in $(all_profiles); do echo "profile $profile"; done
    echo "default $(board_profiles "$(board_of n1)" | tail -n 1 | cut -d ' ' -f 1)"
    echo "max_nodes $NODES"
}

# prolog_delay: makes the time between slurmctld's decision and the agent's lease, milliseconds else, long enough to
# look into. The SPANK prolog runs before the site's Prolog, so nothing in slurm.conf can come before it; but slurmd
# runs it as "slurmstepd spank prolog" and takes another slurmstepd with -d. Without a plugin it runs no SPANK
# prolog at all, and the site's Prolog waits instead. Killing the sleep ends the delay and harms nothing.
prolog_delay() {
    # shellcheck disable=SC2016
    if [[ -s /etc/slurm/plugstack.conf ]]; then
        printf '#!/bin/sh\n[ "$1 $2" != "spank prolog" ] || sleep %s\nexec %s "$@"\n' \
            "$PROLOG_DELAY" "$(command -v slurmstepd)" >"$DELAYED_SLURMSTEPD"
        chmod 755 "$DELAYED_SLURMSTEPD"
    else
        printf '#!/bin/sh\nsleep %s\nexit 0\n' "$PROLOG_DELAY" >/etc/slurm/prolog
        chmod 755 /etc/slurm/prolog
        echo "Prolog=/etc/slurm/prolog" >>/etc/slurm/slurm.conf
    fi
}

# write_configuration: fills /etc/slurm, one tmpfs for controller and nodes, as sites share it, and the
# controller's /etc/caelum.
write_configuration() {
    local line
    mkdir -p "$DIR/ctl/slurmctld"
    if [[ -n $JOB_SUBMIT ]]; then
        cp "$JOB_SUBMIT" /etc/slurm/job_submit.lua
        decisions >/etc/caelum/decisions
    fi
    {
        base_slurm_conf
        mig_slurm_conf
        for line in "${CONF[@]}"; do echo "$line"; done # the last value of a key wins
    } >/etc/slurm/slurm.conf
    mig_gres_conf >/etc/slurm/gres.conf
    install -m 600 <(slurmdbd_conf) /etc/slurm/slurmdbd.conf
    if [[ $AGENT == yes && -e $BUILD/spank_caelum.so ]]; then
        echo "required $BUILD/spank_caelum.so"
    fi >/etc/slurm/plugstack.conf
    [[ $PROLOG_DELAY == 0 ]] || prolog_delay
}
