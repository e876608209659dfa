/* Emulates another release's Go object. The plugin reads its interface version and does not call it. */
const int caelum_job_abi = 0;
