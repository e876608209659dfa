# Functions for a devcluster's configuration. Sourced by init.sh, which writes the configuration, and node.sh.
# shellcheck shell=bash

# board_of nN: prints a node's GPU model. If --board is a list, node N gets the N-th model, and nodes beyond the end of
# the list get the last one.
board_of() {
    local boards i=${1#n}
    IFS=, read -ra boards <<<"$BOARD"
    ((i <= ${#boards[@]})) || i=${#boards[@]}
    echo "${boards[i - 1]}"
}

# slurm_config nN SECTION: prints a section of `caelum slurm-config` for emulated GPUs like those of the node, so that
# the cluster uses the configuration that `caelum slurm-config` generates for administrators.
slurm_config() {
    local scratch=$RUN/slurm-config/$1
    (
        # LD_LIBRARY_PATH is set because no driver is installed in a cluster without an agent.
        export NVML_EMULATOR_STATE=$scratch/state LD_LIBRARY_PATH=$BUILD
        if [[ ! -e $NVML_EMULATOR_STATE ]]; then
            mkdir -p "$scratch/dev"
            "$BUILD/nvml-emulator" init --board "$(board_of "$1")" --gpus "$GPUS" --dev-root "$scratch/dev" \
                --proc-root "$scratch/proc" --memory-limits "$MEMORY_LIMITS" >&2
        fi
        # Whether a GPU has fractions depends on the driver's files below /proc.
        unshare --mount sh -c 'mount --bind "$1" /proc/driver; shift; exec "$@"' - "$scratch/proc/driver" \
            "$BUILD/caelum" slurm-config --config "$AGENT_CONFIG" --nodes "$1" --partition gpu --catalogue "$NODES" \
            --cpus 64 --memory 256000 --section "$2"
    )
}

# gres_of nN: prints the node's Gres=, with all slices closed.
gres_of() { slurm_config "$1" nodes | sed -n "s/^NodeName=$1 .*Gres=//p"; }

# slots_of nN: prints how many slots the node has, which is the sum of its gres/gpu counts.
slots_of() {
    gres_of "$1" | tr ',' '\n' | awk -F : '$1 == "gpu" { n += $3 } END { print n }'
}

# every_accounted: prints the AccountingStorageTRES for the GPU models of all nodes, without duplicates.
every_accounted() {
    local node
    for node in $(node_names); do slurm_config "$node" slurm.conf | sed -n 's/^AccountingStorageTRES=//p'; done |
        tr ',' '\n' | awk '!seen[$0]++' | paste -sd ,
}

# address_of nN: prints the node's own address on the loopback interface. A datagram to this address reaches only that
# node's agent.
address_of() { echo "127.0.1.${1#n}"; }

# mig_slurm_conf: prints the slurm.conf lines that Caelum needs.
mig_slurm_conf() {
    local node
    slurm_config n1 slurm.conf | grep -v -e '^AccountingStorageTRES=' -e '^JobSubmitPlugins='
    echo "AccountingStorageTRES=$(every_accounted)"
    [[ ! -e /etc/slurm/job_submit.lua ]] || echo "JobSubmitPlugins=lua"
    # Thanks to config_overrides, each node has more CPUs and memory than the machine, so that only the GPUs limit the
    # number of running jobs.
    for node in $(node_names); do
        echo "NodeName=$node NodeAddr=$(address_of "$node") Port=$((7000 + ${node#n})) CPUs=64 RealMemory=256000 Gres=$(gres_of "$node")"
    done
    # The catalogue has one node for each real node, because the nodes' GPU models may differ.
    for node in $(node_names); do
        slurm_config "$node" nodes | sed -n "s/^NodeName=mig-catalog[^ ]*/NodeName=mig-catalog${node#n}/p"
    done
    echo "PartitionName=gpu Default=YES Nodes=n[1-$NODES],mig-catalog[1-$NODES] MaxTime=INFINITE State=UP"
    # The plain partition has the same nodes, but Caelum does not manage it.
    echo "PartitionName=plain Nodes=n[1-$NODES] MaxTime=INFINITE State=UP"
}

# stock_slurm_conf: prints the slurm.conf lines of a site without Caelum, where Slurm allocates whole GPUs. PluginDir
# includes the directory with the binaries, so that the site's administrator can add the plugin to plugstack.conf.
stock_slurm_conf() {
    local node plugins
    plugins=$(dirname "$(find /usr/lib -name select_cons_tres.so -print -quit)")
    echo "PluginDir=$plugins:$BUILD"
    echo "GresTypes=gpu"
    [[ ! -e /etc/slurm/job_submit.lua ]] || echo "JobSubmitPlugins=lua"
    for node in $(node_names); do
        echo "NodeName=$node NodeAddr=$(address_of "$node") Port=$((7000 + ${node#n})) CPUs=64 RealMemory=256000 Gres=gpu:$(type_of "$node"):$GPUS"
    done
    echo "PartitionName=gpu Default=YES Nodes=n[1-$NODES] MaxTime=INFINITE State=UP"
    echo "PartitionName=plain Nodes=n[1-$NODES] MaxTime=INFINITE State=UP"
}

stock_gres_conf() {
    local node
    for node in $(node_names); do
        echo "NodeName=$node Name=gpu Type=$(type_of "$node") File=/dev/nvidia[0-$((GPUS - 1))]"
    done
}

# type_of nN: prints the GRES type of the node's GPUs.
type_of() { gres_of "$1" | sed 's/^gpu:\([^:]*\):.*/\1/'; }

mig_gres_conf() {
    local node
    echo "AutoDetect=off"
    for node in $(node_names); do slurm_config "$node" gres.conf | grep -v '^AutoDetect='; done
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
DebugFlags=Hetjob
SlurmdLogFile=$DIR/log/slurmd-%n.log
SlurmdDebug=verbose
LogTimeFormat=iso8601_ms
MpiDefault=none
ProctrackType=proctrack/$([[ $CGROUP == none ]] && echo linuxproc || echo cgroup)
TaskPlugin=task/$([[ $CGROUP == none ]] && echo none || echo cgroup)
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

# decisions: prints the initial decision table. Because it contains no job keys, every job gets the default profile.
decisions() {
    local node
    slurm_config n1 decisions | grep -vE '^(profile|model) '
    for node in $(node_names); do slurm_config "$node" decisions | grep -E '^(profile|model) '; done | awk '!seen[$0]++'
}

# slurmstepd LINE: writes the script that slurmd starts instead of slurmstepd (slurmd's -d option). It runs LINE before
# slurmstepd.
slurmstepd() {
    local preload=
    [[ $CGROUP != v2 ]] || preload="export LD_PRELOAD=$UNIFIED"
    printf '#!/bin/sh\n%s\n%s\nexec slurmstepd "$@"\n' "$1" "$preload" >"$SLURMSTEPD"
    chmod 755 "$SLURMSTEPD"
}

# prolog_delay: extends the time between a job's start in slurmctld and its lease, which is otherwise only a few
# milliseconds. The SPANK prolog runs before the site's Prolog, so no setting in slurm.conf can delay it. But slurmd
# runs it as "slurmstepd spank prolog", and its -d option selects another program as slurmstepd. Without a plugin,
# slurmd runs no SPANK prolog, and the site's Prolog contains the delay. A test can end the delay by killing the sleep
# process.
prolog_delay() {
    if [[ -s /etc/slurm/plugstack.conf ]]; then
        slurmstepd "[ \"\$1 \$2\" != 'spank prolog' ] || sleep $PROLOG_DELAY"
    else
        printf '#!/bin/sh\nsleep %s\nexit 0\n' "$PROLOG_DELAY" >/etc/slurm/prolog
        chmod 755 /etc/slurm/prolog
        echo "Prolog=/etc/slurm/prolog" >>/etc/slurm/slurm.conf
    fi
}

# write_configuration: writes /etc/slurm and the controller's /etc/caelum. /etc/slurm is a tmpfs that the controller and
# the nodes share, as at many sites.
write_configuration() {
    local line
    mkdir -p "$DIR/ctl/slurmctld"
    [[ $AGENT == no ]] || { cat "$AGENT_CONFIG" && echo "wake_address: 127.0.0.1"; } >/etc/caelum/caelum.yaml
    if [[ -n $JOB_SUBMIT ]]; then
        cp "$JOB_SUBMIT" /etc/slurm/job_submit.lua
        [[ $STOCK == yes ]] || decisions >/etc/caelum/decisions
    fi
    {
        base_slurm_conf
        if [[ $STOCK == yes ]]; then stock_slurm_conf; else mig_slurm_conf; fi
        for line in "${CONF[@]}"; do echo "$line"; done # Slurm uses the last value of a key
    } >/etc/slurm/slurm.conf
    if [[ $STOCK == yes ]]; then stock_gres_conf; else mig_gres_conf; fi >/etc/slurm/gres.conf
    [[ $CGROUP == none ]] || cgroup_conf "$CGROUP" >/etc/slurm/cgroup.conf
    install -m 600 <(slurmdbd_conf) /etc/slurm/slurmdbd.conf
    if [[ $AGENT == yes && $STOCK == no && -e $BUILD/spank_caelum.so ]]; then
        echo "required $BUILD/spank_caelum.so"
    fi >/etc/slurm/plugstack.conf
    if [[ $CGROUP == v2 ]]; then
        # shellcheck disable=SC2154 # the script that sources this file sets $here
        cc -Wall -O1 -shared -fPIC -o "$UNIFIED" "$here/unified.c"
        slurmstepd ''
    fi
    [[ $PROLOG_DELAY == 0 ]] || prolog_delay
}
