# This program generates the C table of GPU models from internal/core/mig/models.txt. The comment at the top of models.txt
# describes the columns.
#
# The table also has the GPU model H100-80GB-NEWER, an H100-80GB whose driver has a profile with a higher number than the
# nvml.h of the build knows.
#
# A dash stands for an unpublished number, which the emulator approximates as follows:
#   memory          1000 MiB for each GB in the profile's name (published values are between 998 and 1014)
#   full memory     1024 MiB for each GB in the largest profile's name, or that profile's memory if it is more
#   SMs             the number of compute slices times the smallest known number of SMs per compute slice of the GPU model
#   CE, DEC...      the number of compute slices times the number of the first profile (1g)
#   OFA             1 for the profile of the whole GPU, otherwise 0

function known(x) { return x != "-" && x != "" }

function nominal(name,    s) {
    s = name
    sub(/^[^.]*\./, "", s)
    return s + 0
}

# per_slice returns the smallest known value of column c per compute slice, over all profiles of this GPU model, because
# profiles with twice the memory have more SMs per compute slice than others.
function per_slice(c,    i, least) {
    least = 0
    for (i = 0; i < n; i++)
        if (known(row[i, c]) && (least == 0 || int(row[i, c] / row[i, 3]) < least))
            least = int(row[i, c] / row[i, 3])
    return least
}

function print_board(newer,    i, j, k, v, starts, count, total) {
    total = full
    for (i = 0; full == 0 && i < n; i++) {
        v = nominal(row[i, 1]) * 1024
        if (known(row[i, 7]) && row[i, 7] > v) v = row[i, 7]
        if (v > total) total = v
    }
    printf "    {\n        .name = \"%s\", .type = \"%s\", .device = \"%s\",\n", board, type, device
    printf "        .grid = %d, .pci_id = %s, .live_mode = %s, .arch = %s, .total_mib = %d, .nprofiles = %d,\n",
        (n ? grid : 1), pci, (mode == "live" ? "true" : "false"), (n ? arch[mode] : grid), total, n + newer
    if (n) print "        .profiles = {"
    for (i = 0; i < n; i++) {
        if (!known(row[i, 6])) row[i, 6] = per_slice(6) * row[i, 3]
        if (!known(row[i, 7])) row[i, 7] = nominal(row[i, 1]) * 1000
        for (j = 8; j <= 11; j++)
            if (!known(row[i, j])) row[i, j] = row[0, j] * row[i, 3]
        if (!known(row[i, 12])) row[i, 12] = row[i, 4] == grid ? 1 : 0
        count = split(row[i, 15], starts, ",")
        printf "            {.name = \"%s\", .id = %d, .slices = %d, .size = %d, .limit = %d, .sms = %d, .memory_mib = %d,\n",
            row[i, 1], row[i, 2], row[i, 3], row[i, 4], row[i, 5], row[i, 6], row[i, 7]
        printf "             .ce = %d, .media = {%d, %d, %d, %d}, .gfx = %s, .nvml = NVML_GPU_INSTANCE_PROFILE_%s,\n",
            row[i, 8], row[i, 9], row[i, 10], row[i, 11], row[i, 12], (row[i, 13] == "gfx" ? "true" : "false"), row[i, 14]
        printf "             .nstarts = %d, .starts = {", count
        for (k = 1; k <= count; k++) printf "%s%d", (k > 1 ? ", " : ""), starts[k]
        print "}},"
    }
    if (newer)
        printf "            {.name = \"1g.10gb+new\", .id = 99, .slices = 1, .size = 1, .limit = 1, .sms = 16, .memory_mib = 9984, .ce = 1,\n             .media = {1, 0, 1, 0}, .nvml = NVML_GPU_INSTANCE_PROFILE_COUNT, .nstarts = 7, .starts = {0, 1, 2, 3, 4, 5, 6}},\n"
    print (n ? "        },\n    }," : "    },")
}

function flush_board() {
    if (board == "") return
    print_board(0)
    if (board == "H100-80GB") {
        board = board "-NEWER"
        print_board(1)
        nboards++
    }
    n = full = 0
}

BEGIN {
    print "/* Generated from internal/core/mig/models.txt by boards.awk. */"
    print "#include \"board.h\"\n\nconst struct board boards[] = {"
    n = full = 0
    # models.txt does not contain the architecture of GPUs with MIG. Those of Hopper and later switch MIG mode live.
    arch["live"] = "NVML_DEVICE_ARCH_HOPPER"
    arch["reset"] = "NVML_DEVICE_ARCH_AMPERE"
}

$1 == "full" { full = $2 }

$1 == "board" {
    flush_board()
    board = $2; grid = $3; type = $4; pci = $5; mode = $6
    device = $0
    for (i = 1; i <= 6; i++) sub(/^[ \t]*[^ \t]+[ \t]+/, "", device)
    nboards++
}

$1 == "profile" {
    if (NF != 16) {
        printf "models.txt:%d: %d columns, want 16\n", NR, NF > "/dev/stderr"
        failed = 1
        exit 1
    }
    for (i = 2; i <= NF; i++) row[n, i - 1] = $i
    n++
}

END {
    if (failed) exit 1
    flush_board()
    printf "};\n\nconst int nboards = %d;\n", nboards
}
