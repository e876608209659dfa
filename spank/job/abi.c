#include "job.h"

/* Data, so that the plugin can look at it before it calls into Go. */
const int caelum_job_abi = CAELUM_JOB_ABI;
