/* This file implements the show and log subcommands. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "ctl.h"

/* draw prints the layout of a GPU with three characters per unit: |1g|1g| | |3g | */
static void draw(const struct gpu_state *g)
{
    const struct gi_state *at[16] = {0};
    unsigned grid = rules_board(g)->grid;
    if (!g->mig) {
        printf("|%-*s|\n", (int)(3 * grid - 1), "whole GPU");
        return;
    }
    for (int i = 0; i < EMU_MAX_GI; i++)
        if (g->gi[i].used)
            at[g->gi[i].start] = &g->gi[i];
    putchar('|');
    for (unsigned u = 0; u < grid;) {
        unsigned size = at[u] ? at[u]->size : 1;
        char name[24] = "";
        if (at[u])
            snprintf(name, sizeof name, "%ug", rules_profile(g, at[u])->slices);
        printf("%-*s|", (int)(3 * size - 1), name);
        u += size;
    }
    putchar('\n');
}

/* pending_mode describes a MIG mode that is not in effect yet. */
static const char *pending_mode(const struct gpu_state *g)
{
    if (g->mig == g->mig_pending)
        return "";
    if (rules_board(g)->live_mode)
        return g->mig_pending ? " (on is pending)" : " (off is pending)";
    return g->mig_pending ? " (on after a reset)" : " (off after a reset)";
}

static void show_nvlinks(unsigned gpus)
{
    if (!gpus)
        return;
    printf("  NVLinks to GPU");
    for (unsigned i = 0; i < EMU_MAX_GPUS; i++)
        if (gpus >> i & 1)
            printf(" %u", i);
    putchar('\n');
}

static void show_processes(const struct state *st)
{
    for (int i = 0; i < EMU_MAX_CLIENTS; i++) {
        const struct client *c = &st->client[i];
        if (!client_live(c))
            continue;
        if (c->gi == EMU_WHOLE)
            printf("process %u on GPU %u: %u MiB\n", c->pid, c->gpu, c->memory_mib);
        else
            printf("process %u on GPU %u GI %u CI %u: %u MiB\n", c->pid, c->gpu, c->gi, c->ci, c->memory_mib);
    }
}

static void show_text(const struct state *st)
{
    for (unsigned i = 0; i < st->ngpus; i++) {
        const struct gpu_state *g = &st->gpu[i];
        char uuid[UUID_TEXT];
        ops_uuid_text("GPU-", g->uuid, uuid);
        printf("GPU %u %s %s MIG %s%s%s%s\n  ", i, g->board_name, uuid, g->mig ? "on" : "off", pending_mode(g),
               g->lost ? " LOST" : "", g->held ? "  held" : "");
        draw(g);
        show_nvlinks(g->nvlink);
        if (!g->mig)
            printf("  %u of %u MiB\n", ops_used_mib(st, i, -1), rules_board(g)->total_mib);
        for (unsigned k = 0; k < EMU_MAX_GI; k++) {
            const struct gi_state *gi = &g->gi[k];
            if (!gi->used)
                continue;
            printf("  GI %2u %-14s %u-%u  %u of %u MiB%s\n", k, rules_name(g, gi->profile), gi->start, gi->start + gi->size - 1u,
                   ops_used_mib(st, i, (int)k), rules_memory_mib(g, gi->profile), gi->held ? "  held" : "");
            for (unsigned c = 0; c < EMU_MAX_CI; c++) {
                if (!gi->ci[c].used)
                    continue;
                ops_uuid_text("MIG-", gi->ci[c].uuid, uuid);
                printf("        CI %u %s\n", c, uuid);
            }
        }
    }
    show_processes(st);
    for (int i = 0; i < EMU_MAX_FAULTS; i++)
        if (st->fault[i].used) {
            printf("faults are set; see nvml-emulator fault list\n");
            break;
        }
}

/*
 * json_name prints a profile name as a JSON string without escapes, omitting characters that would need one. Only names
 * set by `drift` can contain them.
 */
static void json_name(const char *name)
{
    putchar('"');
    for (; *name; name++)
        if (*name != '"' && *name != '\\' && (unsigned char)*name >= ' ')
            putchar(*name);
    putchar('"');
}

/* show_limits prints the memory limits of cgroups, also those of cgroups that no longer exist, as JSON. */
static void show_limits(const struct state *st)
{
    const char *sep = "";
    for (int k = 0; k < EMU_MAX_CGROUPS; k++) {
        const struct cgroup *c = &st->cgroup[k];
        for (unsigned i = 0; c->inode && i < st->ngpus; i++)
            if (c->limit[i] && c->limit[i] != UINT64_MAX) {
                printf("%s{\"gpu\":%u,\"inode\":%llu,\"mib\":%llu}", sep, i, (unsigned long long)c->inode,
                       (unsigned long long)(c->limit[i] >> 20));
                sep = ",";
            }
    }
}

static void show_json(const struct state *st)
{
    char uuid[UUID_TEXT];
    const char *sep = "";
    printf("{\"gpus\":[");
    for (unsigned i = 0; i < st->ngpus; i++) {
        const struct gpu_state *g = &st->gpu[i];
        ops_uuid_text("GPU-", g->uuid, uuid);
        printf("%s{\"gpu\":%u,\"board\":\"%s\",\"uuid\":\"%s\",\"grid\":%u,\"mig\":%s,\"mig_pending\":%s,\"lost\":%s,\"held\":%s,", sep, i,
               g->board_name, uuid, rules_board(g)->grid, g->mig ? "true" : "false", g->mig_pending ? "true" : "false",
               g->lost ? "true" : "false", g->held ? "true" : "false");
        printf("\"memory_mib\":%u,\"used_mib\":%u,\"nvlink\":[", rules_board(g)->total_mib, ops_used_mib(st, i, -1));
        sep = "";
        for (unsigned k = 0; k < st->ngpus; k++)
            if (g->nvlink >> k & 1) {
                printf("%s%u", sep, k);
                sep = ",";
            }
        printf("],\"instances\":[");
        sep = "";
        for (unsigned k = 0; k < EMU_MAX_GI; k++) {
            const struct gi_state *gi = &g->gi[k];
            if (!gi->used)
                continue;
            printf("%s{\"gi\":%u,\"profile\":", sep, k);
            json_name(rules_name(g, gi->profile));
            printf(",\"start\":%u,\"size\":%u,\"memory_mib\":%u,\"used_mib\":%u,\"held\":%s,\"compute\":[", gi->start, gi->size,
                   rules_memory_mib(g, gi->profile), ops_used_mib(st, i, (int)k), gi->held ? "true" : "false");
            sep = "";
            for (unsigned c = 0; c < EMU_MAX_CI; c++) {
                if (!gi->ci[c].used)
                    continue;
                ops_uuid_text("MIG-", gi->ci[c].uuid, uuid);
                printf("%s{\"ci\":%u,\"slices\":%u,\"uuid\":\"%s\"}", sep, c, gi->ci[c].slices, uuid);
                sep = ",";
            }
            printf("]}");
            sep = ",";
        }
        printf("]}");
        sep = ",";
    }
    printf("],\"processes\":[");
    sep = "";
    for (int i = 0; i < EMU_MAX_CLIENTS; i++) {
        const struct client *c = &st->client[i];
        if (!client_live(c))
            continue;
        printf("%s{\"pid\":%u,\"gpu\":%u,", sep, c->pid, c->gpu);
        if (c->gi == EMU_WHOLE)
            printf("\"gi\":null,\"ci\":null,");
        else
            printf("\"gi\":%u,\"ci\":%u,", c->gi, c->ci);
        printf("\"memory_mib\":%u}", c->memory_mib);
        sep = ",";
    }
    printf("],\"limits\":[");
    show_limits(st);
    printf("]}\n");
}

int cmd_show(int argc, char **argv)
{
    bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
    if (argc > 1 && !json)
        ctl_fail(EXIT_USAGE, "show [--json]");
    struct txn t;
    ctl_begin(&t, TXN_READ);
    (json ? show_json : show_text)(t.st);
    txn_end(&t);
    return EXIT_OK;
}

int cmd_calls(int argc, char **argv)
{
    bool reset = argc == 2 && strcmp(argv[1], "--reset") == 0;
    if (argc > 1 && !reset)
        ctl_fail(EXIT_USAGE, "calls [--reset]");
    if (reset && calls_reset(state_path()) != 0)
        ctl_fail(EXIT_STATE, "couldn't reset the numbers of calls of %s", state_path());
    const uint64_t *calls = calls_open(state_path());
    if (!calls)
        ctl_fail(EXIT_STATE, "couldn't read the numbers of calls of %s; create a state with: nvml-emulator init", state_path());
    for (int i = 0; i < CALL_KINDS && !reset; i++)
        if (calls[i])
            printf("%s %llu\n", call_name(i), (unsigned long long)calls[i]);
    return EXIT_OK;
}

int cmd_log(int argc, char **argv)
{
    char path[600];
    snprintf(path, sizeof path, "%s.log", state_path());
    if (argc == 2 && strcmp(argv[1], "--path") == 0) {
        printf("%s\n", path);
        return EXIT_OK;
    }
    if (argc != 1)
        ctl_fail(EXIT_USAGE, "log [--path]");
    /*
     * cmd_log uses a write transaction, because txn_begin then writes the log lines that a killed process could not
     * write, and logs clients that have ended.
     */
    struct txn t;
    ctl_begin(&t, TXN_WRITE);
    ctl_done(&t);
    FILE *f = fopen(path, "r");
    if (!f)
        ctl_fail(EXIT_STATE, "couldn't read %s", path);
    char line[1024];
    while (fgets(line, sizeof line, f))
        fputs(line, stdout);
    fclose(f);
    return EXIT_OK;
}
