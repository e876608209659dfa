/* This file implements the quirk subcommand. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl.h"
#include "quirk.h"

int cmd_quirk(int argc, char **argv)
{
    bool off = argc == 3 && strcmp(argv[2], "off") == 0;
    if (argc != 2 && !off)
        ctl_fail(EXIT_USAGE, "quirk needs a name; see nvml-emulator quirk --help");
    for (int q = 0; q < QUIRK_COUNT; q++) {
        char path[600];
        if (strcmp(argv[1], quirk_names[q]) != 0)
            continue;
        quirk_path((enum quirk)q, path);
        if (off) {
            unlink(path);
            return EXIT_OK;
        }
        FILE *f = fopen(path, "we");
        if (!f)
            ctl_fail(EXIT_STATE, "couldn't create %s", path);
        fclose(f);
        return EXIT_OK;
    }
    ctl_fail(EXIT_USAGE, "unknown quirk %s; see nvml-emulator quirk --help", argv[1]);
}
