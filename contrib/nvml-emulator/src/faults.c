#include "faults.h"

#include "ops.h"

struct fault *fault_find(struct state *st, int call, int gpu)
{
    for (int i = 0; i < EMU_MAX_FAULTS; i++) {
        struct fault *f = &st->fault[i];
        if (f->used && f->call == call && (f->gpu < 0 || f->gpu == gpu))
            return f;
    }
    return NULL;
}

int fault_take(struct txn *t, int call, int gpu, struct fault *now)
{
    *now = (struct fault){0};
    struct fault *f = fault_find(t->st, call, gpu);
    if (!f)
        return 0;
    if (f->nth > 1) {
        f->nth--;
        return txn_commit(t);
    }
    *now = *f;
    if (--f->times == 0)
        *f = (struct fault){0};
    if (call == CALL_RESET && now->rc == NVML_ERROR_GPU_IS_LOST && gpu >= 0 && (unsigned)gpu < t->st->ngpus)
        ops_lose(&t->st->gpu[gpu]);
    return txn_commit(t);
}
