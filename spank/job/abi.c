#include "job.h"

/* A variable instead of a function, so that the plugin can check the version before the plugin calls Go code. */
const int caelum_job_abi = CAELUM_JOB_ABI;
