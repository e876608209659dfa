/*
 * This program calls the functions for memory limits, which go-nvml does not have. It loads the library at run time and
 * declares the structures itself. It prints the return code and, if the call succeeds, the results.
 *
 *   limits LIBRARY set GPU CGROUP SOFT HARD
 *   limits LIBRARY get GPU CGROUP              prints the soft limit, the hard limit, and the bytes in use
 *   limits LIBRARY memory GPU                  prints the total and the bytes in use of nvmlDeviceGetMemoryInfo_v2
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct limits {
    const char *name_space;
    unsigned long long soft, hard, used; /* the structure for setting limits ends before used */
};

struct memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

static void *library;

static void *function(const char *name)
{
    void *f = dlsym(library, name);
    if (!f) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return f;
}

int main(int argc, char **argv)
{
    void *device;
    library = argc > 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library)
        return 2;
    int (*init)(void) = (int (*)(void))function("nvmlInit_v2");
    int (*handle)(unsigned, void **) = (int (*)(unsigned, void **))function("nvmlDeviceGetHandleByIndex_v2");
    int rc = init();
    if (rc == 0)
        rc = handle((unsigned)atoi(argv[3]), &device);
    if (rc != 0)
        return 2;
    struct limits l = {.name_space = argc > 4 ? argv[4] : NULL};
    struct memory m = {.version = sizeof m | 2 << 24};
    if (strcmp(argv[2], "set") == 0 && argc == 7) {
        l.soft = strtoull(argv[5], NULL, 10), l.hard = strtoull(argv[6], NULL, 10);
        printf("%d\n", ((int (*)(void *, struct limits *))function("nvmlDeviceSetMemoryLimits_v1"))(device, &l));
    } else if (strcmp(argv[2], "get") == 0) {
        rc = ((int (*)(void *, struct limits *))function("nvmlDeviceGetMemoryLimits_v1"))(device, &l);
        printf("%d %llu %llu %llu\n", rc, l.soft, l.hard, l.used);
    } else {
        rc = ((int (*)(void *, struct memory *))function("nvmlDeviceGetMemoryInfo_v2"))(device, &m);
        printf("%d %llu %llu\n", rc, m.total, m.used);
    }
    return 0;
}
