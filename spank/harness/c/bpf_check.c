/*
 * Tests bpf.c on a real v2 cgroup.
 *
 *   bpf_check refuse STEP MAJOR:MINOR   confines the step of a job whose lease has one device; prints "ok" or the reason
 *   bpf_check stray SCOPE               attaches a program and exits, like a task that is killed after this step
 *   bpf_check programs SCOPE            prints how many of the plugin's programs are attached
 *   bpf_check open DEVICE               opens the device as uid 65534; prints "ok" or the error
 */
#include "../../bpf.c"

static const struct devices all = { .n = 2, .device = { { 1, 9 }, { 1, 8 } } };

static int refuse(const char *step, const char *device)
{
	struct lease own = { .devices = 1 };
	char why[256] = "";
	int rc;

	text_device(device, strlen(device), &own.device[0]);
	rc = bpf_refuse(step, &all, &own, why, sizeof(why));
	printf("%s\n", rc == 0 ? "ok" : why);
	return 0;
}

static int programs(int scope)
{
	uint32_t ids[64], map_id;
	CLEARED(union bpf_attr, query);
	int n = 0;

	query.query.target_fd = scope;
	query.query.attach_type = BPF_CGROUP_DEVICE;
	query.query.prog_ids = (uintptr_t)ids;
	query.query.prog_cnt = 64;
	if (bpf(BPF_PROG_QUERY, &query) < 0)
		return -1;
	for (unsigned i = 0; i < query.query.prog_cnt; i++) {
		int program = open_program(ids[i], &map_id);

		n += program >= 0;
		close(program);
	}
	return n;
}

int main(int argc, char **argv)
{
	char why[256];

	if (argc < 3)
		return 2;
	if (strcmp(argv[1], "refuse") == 0)
		return argc == 4 ? refuse(argv[2], argv[3]) : 2;
	if (strcmp(argv[1], "open") == 0) {
		if (syscall(SYS_setresuid, 65534, 65534, 65534) < 0)
			return 1;
		printf("%s\n", open(argv[2], O_RDONLY) < 0 ? strerror(errno) : "ok");
	} else if (strcmp(argv[1], "stray") == 0) {
		printf("%d\n", attach(open(argv[2], O_RDONLY), &all, why, sizeof(why)));
	} else {
		printf("%d\n", programs(open(argv[2], O_RDONLY)));
	}
	return 0;
}
