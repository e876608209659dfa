/* This file implements the subcommands show and log. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"

/* draw prints the layout of a GPU with three characters per unit: |1g|1g| | |3g | */
static void draw(const struct gpu_state *g)
{
    const struct gi_state *at[16] = {0};
    unsigned grid = rules_board(g)->grid;
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

static void show_text(const struct state *st)
{
    for (unsigned i = 0; i < st->ngpus; i++) {
        const struct gpu_state *g = &st->gpu[i];
        char uuid[UUID_TEXT];
        ops_uuid_text("GPU-", g->uuid, uuid);
        printf("GPU %u %s %s MIG %s%s%s\n  ", i, g->board_name, uuid, g->mig ? "on" : "off",
               g->mig != g->mig_pending ? (g->mig_pending ? " (on after a reset)" : " (off after a reset)") : "",
               g->lost ? " LOST" : "");
        draw(g);
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
    for (int i = 0; i < EMU_MAX_CLIENTS; i++)
        if (client_live(&st->client[i])) {
            const struct client *c = &st->client[i];
            printf("process %u on GPU %u GI %u CI %u: %u MiB\n", c->pid, c->gpu, c->gi, c->ci, c->memory_mib);
        }
    for (int i = 0; i < EMU_MAX_FAULTS; i++)
        if (st->fault[i].used) {
            printf("faults are set; see nvml-emulator fault list\n");
            break;
        }
}

/*
 * json_name prints a profile name as a JSON string without escapes. json_name omits the characters that would need an
 * escape. Only a name that `drift` has set can contain such characters.
 */
static void json_name(const char *name)
{
    putchar('"');
    for (; *name; name++)
        if (*name != '"' && *name != '\\' && (unsigned char)*name >= ' ')
            putchar(*name);
    putchar('"');
}

static void show_json(const struct state *st)
{
    char uuid[UUID_TEXT];
    const char *sep = "";
    printf("{\"gpus\":[");
    for (unsigned i = 0; i < st->ngpus; i++) {
        const struct gpu_state *g = &st->gpu[i];
        ops_uuid_text("GPU-", g->uuid, uuid);
        printf("%s{\"gpu\":%u,\"board\":\"%s\",\"uuid\":\"%s\",\"grid\":%u,\"mig\":%s,\"mig_pending\":%s,\"lost\":%s,\"instances\":[", sep, i,
               g->board_name, uuid, rules_board(g)->grid, g->mig ? "true" : "false", g->mig_pending ? "true" : "false",
               g->lost ? "true" : "false");
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
    for (int i = 0; i < EMU_MAX_CLIENTS; i++)
        if (client_live(&st->client[i])) {
            const struct client *c = &st->client[i];
            printf("%s{\"pid\":%u,\"gpu\":%u,\"gi\":%u,\"ci\":%u,\"memory_mib\":%u}", sep, c->pid, c->gpu, c->gi, c->ci, c->memory_mib);
            sep = ",";
        }
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
     * cmd_log uses a write transaction, because txn_begin then writes the missing log lines of a killed process, and
     * logs clients that have ended.
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
