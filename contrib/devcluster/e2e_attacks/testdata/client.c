/* client sends slurmctld requests that sbatch and scontrol cannot send.
 *
 *   client submit <admin comment>      submits a held job with one GPU and an admin_comment
 *   client tasks <job id>              sets the job's number of tasks per GPU, from which slurmctld derives its GPUs
 *   client flood <number>              submits a held job with one GPU and this number of SPANK variables
 */
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
#define JOB_ID step_id.job_id
#else
#define JOB_ID job_id
#endif

int main(int argc, char **argv)
{
	job_desc_msg_t job;
	submit_response_msg_t *answer = NULL;
	long flood = 0;
	char *environment[] = { "PATH=/usr/bin:/bin", NULL };
	int rc;

	if (argc != 3)
		return 2;
	slurm_init(NULL);
	slurm_init_job_desc_msg(&job);
	if (strcmp(argv[1], "flood") == 0)
		flood = strtol(argv[2], NULL, 10);
	if (strcmp(argv[1], "submit") == 0 || flood > 0) {
		job.script = "#!/bin/sh\ntrue\n";
		job.name = "forged";
		job.user_id = getuid();
		job.group_id = getgid();
		job.priority = 0;
		job.tres_per_node = "gres:gpu:1";
		job.work_dir = "/tmp";
		job.environment = environment;
		job.env_size = 1;
		job.min_nodes = 1;
		job.admin_comment = argv[2][0] && !flood ? argv[2] : NULL;
		if (flood > 0)
			job.spank_job_env = calloc(flood, sizeof(char *));
		for (long i = 0; i < flood; i++)
			job.spank_job_env[i] = "_SLURM_SPANK_OPTION_caelum_mi";
		job.spank_job_env_size = flood;
		rc = slurm_submit_batch_job(&job, &answer);
		if (rc == SLURM_SUCCESS)
			printf("%u\n", answer->JOB_ID);
	} else {
		job.JOB_ID = (uint32_t)strtoul(argv[2], NULL, 10);
		job.cpus_per_tres = "gres:gpu:1";
		job.ntasks_per_tres = 1;
		rc = slurm_update_job(&job);
	}
	if (rc != SLURM_SUCCESS)
		fprintf(stderr, "%s\n", slurm_strerror(errno));
	return rc != SLURM_SUCCESS;
}
