/* This header declares a function for each subcommand of nvml-emulator, the control command. */
#ifndef EMU_CTL_H
#define EMU_CTL_H

#include "ops.h"
#include "rules.h"

/* All subcommands use these exit statuses, which --help prints. */
enum {
    EXIT_OK = 0,
    EXIT_REFUSED = 1,
    EXIT_USAGE = 2,
    EXIT_STATE = 3,
};

/* argv[0] is the name of the subcommand. The cmd_ functions return the exit status. */
int cmd_init(int argc, char **argv);
int cmd_latency(int argc, char **argv);
int cmd_fault(int argc, char **argv);
int cmd_drift(int argc, char **argv);
int cmd_uuid(int argc, char **argv);
int cmd_hold(int argc, char **argv); /* also implements unhold */
int cmd_lose(int argc, char **argv); /* also implements find */
int cmd_xid(int argc, char **argv);
int cmd_mig_mode(int argc, char **argv);
int cmd_reset(int argc, char **argv);
int cmd_reboot(int argc, char **argv);
int cmd_limit(int argc, char **argv);
int cmd_create(int argc, char **argv);
int cmd_destroy(int argc, char **argv);
int cmd_calls(int argc, char **argv);
int cmd_quirk(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_log(int argc, char **argv);
int cmd_lock(int argc, char **argv);

/* ctl_fail prints a message and ends the program with the status. */
_Noreturn void ctl_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * ctl_begin begins a transaction, or ends the program with EXIT_STATE if the state is unreadable. ctl_done commits the
 * transaction and returns EXIT_OK.
 */
void ctl_begin(struct txn *t, enum txn_mode mode);
int ctl_done(struct txn *t);

/*
 * ctl_end_with logs the event, commits the transaction and returns the exit status for the return code. If the return
 * code is an error, it prints "couldn't" followed by what.
 */
int ctl_end_with(struct txn *t, struct event *e, nvmlReturn_t rc, const char *what);

/*
 * ctl_number parses a number, and ctl_gpu the index of a GPU. Both end the program with EXIT_USAGE if the text is
 * invalid.
 */
unsigned ctl_number(const char *text, const char *what, unsigned max);
unsigned ctl_gpu(const struct txn *t, const char *text);

/* ctl_board returns the index of a GPU model, or ends the program with EXIT_USAGE if the model is unknown. */
int ctl_board(const char *name);

/*
 * ctl_gi parses the id of an instance on the GPU, or ends the program with EXIT_REFUSED if there is no such instance.
 */
unsigned ctl_gi(const struct txn *t, unsigned gpu, const char *text);

#endif
