#include "job.h"

/* A variable rather than a function, so that the plugin can check the version before it calls Go code. */
const int caelum_job_abi = CAELUM_JOB_ABI;
