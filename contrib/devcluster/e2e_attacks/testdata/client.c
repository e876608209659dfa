/* client: requests to slurmctld that sbatch and scontrol have no option for.
 *
 *   client submit <admin comment>      a held job of one GPU
 *   client tasks <job id>              GPUs by tasks per GPU, which no string of the job shows
 */
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	job_desc_msg_t job;
	submit_response_msg_t *answer = NULL;
	char *environment[] = { "PATH=/usr/bin:/bin", NULL };
	int rc;

	if (argc != 3)
		return 2;
	slurm_init(NULL);
	slurm_init_job_desc_msg(&job);
	if (strcmp(argv[1], "submit") == 0) {
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
		job.admin_comment = argv[2][0] ? argv[2] : NULL;
		rc = slurm_submit_batch_job(&job, &answer);
		if (rc == SLURM_SUCCESS)
			printf("%u\n", answer->job_id);
	} else {
		job.job_id = (uint32_t) strtoul(argv[2], NULL, 10);
		job.cpus_per_tres = "gres:gpu:1";
		job.ntasks_per_tres = 1;
		rc = slurm_update_job(&job);
	}
	if (rc != SLURM_SUCCESS)
		fprintf(stderr, "%s\n", slurm_strerror(errno));
	return rc != SLURM_SUCCESS;
}
