/*
 * Devices in cgroup v2, where BPF programs decide. Slurm (22.05, cgroup_v2.c) attaches its own to the job, with
 * BPF_F_ALLOW_OVERRIDE, to the step's "user" and to the tasks. The kernel runs, for a task, the programs of the nearest
 * cgroup that has any, and above it those alone that were attached with BPF_F_ALLOW_MULTI. So one of ours
 *
 *   at the job       is refused, or makes Slurm's be refused: the flags of a cgroup's programs must agree;
 *   at the step      puts Slurm's of the job out of force, the only ones of a batch step;
 *   above all jobs   runs beside every one of theirs, if attached with BPF_F_ALLOW_MULTI.
 *
 * Hence one program on the scope of all slurmstepds, made by the first task after the boot, and a map that says whose
 * devices are whose. Both live as long as the scope. A job that the map does not know may open none of them, so jobs without a
 * slice need nothing done.
 */
#include "cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAME "caelum"
#define MAP_ENTRIES 16384
#define LEVELS 10 /* of cgroups above a task that are asked for; a job's is the third on a machine with systemd */

/* No cgroup's id; 0 is what the kernel answers for a level that a process does not have. */
#define ANY UINT64_MAX

/* {ANY, device}: it needs a lease. {the job's cgroup, device}: that job has it. */
struct key {
	uint64_t cgroup;
	struct device device;
};

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int put(int map, uint64_t cgroup, struct device device)
{
	struct key key = { cgroup, device };
	uint32_t yes = 1;
	union bpf_attr attr = { .map_fd = map, .key = (uintptr_t)&key, .value = (uintptr_t)&yes, .flags = BPF_ANY };

	return bpf(BPF_MAP_UPDATE_ELEM, &attr);
}

/* The map of our program on the scope: a descriptor, or -1 if there is no such program. */
static int find_map(int scope)
{
	static uint32_t ids[64]; /* BPF_CGROUP_MAX_PROGS */
	union bpf_attr query = { .query = { .target_fd = scope, .attach_type = BPF_CGROUP_DEVICE, .prog_ids = (uintptr_t)ids,
					    .prog_cnt = sizeof(ids) / sizeof(ids[0]) } };
	unsigned n = bpf(BPF_PROG_QUERY, &query) == 0 ? query.query.prog_cnt : 0;
	int map = -1;

	for (unsigned i = 0; i < n && map < 0; i++) {
		uint32_t map_id = 0;
		struct bpf_prog_info info = { .nr_map_ids = 1, .map_ids = (uintptr_t)&map_id };
		union bpf_attr get = { .prog_id = ids[i] };
		union bpf_attr ask = { .info = { .info_len = sizeof(info), .info = (uintptr_t)&info } };
		int program = bpf(BPF_PROG_GET_FD_BY_ID, &get);

		if (program < 0)
			continue;
		ask.info.bpf_fd = program;
		if (bpf(BPF_OBJ_GET_INFO_BY_FD, &ask) == 0 && strcmp(info.name, NAME) == 0 && info.nr_map_ids == 1) {
			union bpf_attr by_id = { .map_id = map_id };

			map = bpf(BPF_MAP_GET_FD_BY_ID, &by_id);
		}
		close(program);
	}
	return map;
}

/*
 * The program, on struct bpf_cgroup_dev_ctx (the type in the lower half of the first word, major, minor): may this process open
 * this device? Root may; others if the map has one of the cgroups above them beside the device.
 */
static unsigned assemble(struct bpf_insn *insn, int map)
{
	unsigned n = 0, jump[LEVELS + 3], jumps = 0;

#define EMIT(...) (insn[n] = (struct bpf_insn){ __VA_ARGS__ }, n++)
#define JUMP_IF(...) (jump[jumps++] = n, EMIT(__VA_ARGS__))
#define CALL(function) EMIT(.code = BPF_JMP | BPF_CALL, .imm = (function))
#define LOOK_UP() /* of the key at r10 - 16; r0 = NULL or not */ \
	EMIT(.code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = 1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = map), EMIT(.code = 0), \
	EMIT(.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 2, .src_reg = 10), \
	EMIT(.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = 2, .imm = -(int)sizeof(struct key)), CALL(BPF_FUNC_map_lookup_elem)

	EMIT(.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1, .off = 0);
	EMIT(.code = BPF_ALU | BPF_AND | BPF_K, .dst_reg = 2, .imm = 0xffff);
	JUMP_IF(.code = BPF_JMP | BPF_JNE | BPF_K, .dst_reg = 2, .imm = BPF_DEVCG_DEV_CHAR);
	EMIT(.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1, .off = 4);
	EMIT(.code = BPF_STX | BPF_MEM | BPF_W, .dst_reg = 10, .src_reg = 2, .off = -8);
	EMIT(.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1, .off = 8);
	EMIT(.code = BPF_STX | BPF_MEM | BPF_W, .dst_reg = 10, .src_reg = 2, .off = -4);
	EMIT(.code = BPF_ST | BPF_MEM | BPF_DW, .dst_reg = 10, .off = -16, .imm = -1 /* ANY */);
	LOOK_UP();
	JUMP_IF(.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = 0, .imm = 0);
	CALL(BPF_FUNC_get_current_uid_gid);
	JUMP_IF(.code = BPF_JMP32 | BPF_JEQ | BPF_K, .dst_reg = 0, .imm = 0);
	for (int level = 1; level <= LEVELS; level++) {
		EMIT(.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 1, .imm = level);
		CALL(BPF_FUNC_get_current_ancestor_cgroup_id);
		EMIT(.code = BPF_STX | BPF_MEM | BPF_DW, .dst_reg = 10, .src_reg = 0, .off = -16);
		LOOK_UP();
		JUMP_IF(.code = BPF_JMP | BPF_JNE | BPF_K, .dst_reg = 0, .imm = 0);
	}
	EMIT(.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 0);
	EMIT(.code = BPF_JMP | BPF_EXIT);
	while (jumps--)
		insn[jump[jumps]].off = n - jump[jumps] - 1;
	EMIT(.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 1);
	EMIT(.code = BPF_JMP | BPF_EXIT);
#undef EMIT
#undef JUMP_IF
#undef CALL
#undef LOOK_UP
	return n;
}

/* A kernel that has no bpf_get_current_ancestor_cgroup_id for programs of this type answers so. 6.18 has it. */
#define IS_OLD_KERNEL(error) ((error) == EINVAL)

/* A map with the devices in it, behind a program on the scope: the map's descriptor, or -1 with errno and the reason in why. */
static int make_map(int scope, const struct devices *devices, char *why, size_t size)
{
	struct bpf_insn insn[200];
	union bpf_attr create = { .map_type = BPF_MAP_TYPE_HASH, .key_size = sizeof(struct key), .value_size = 4,
				  .max_entries = MAP_ENTRIES, .map_name = NAME };
	union bpf_attr load = { .prog_type = BPF_PROG_TYPE_CGROUP_DEVICE, .insns = (uintptr_t)insn, .license = (uintptr_t) "",
				.prog_name = NAME };
	union bpf_attr attach = { .target_fd = scope, .attach_type = BPF_CGROUP_DEVICE, .attach_flags = BPF_F_ALLOW_MULTI };
	const char *what = "make a BPF map";
	int program = -1, error = 0;
	int map = bpf(BPF_MAP_CREATE, &create);
	bool ok = map >= 0;

	for (unsigned i = 0; ok && i < devices->n; i++)
		ok = put(map, ANY, devices->device[i]) == 0;
	if (ok) {
		what = "load a BPF program";
		load.insn_cnt = assemble(insn, map);
		program = bpf(BPF_PROG_LOAD, &load);
		ok = program >= 0;
	}
	if (ok) {
		what = "attach a BPF program";
		attach.attach_bpf_fd = program;
		ok = bpf(BPF_PROG_ATTACH, &attach) == 0;
	}
	if (!ok) {
		error = errno;
		snprintf(why, size, "couldn't %s for devices: %s", what, strerror(errno));
		if (map >= 0)
			close(map);
		map = -1;
	}
	if (program >= 0)
		close(program);
	errno = error;
	return map;
}

/* Has a cgroup with this id been removed? Ids are not given again (kernfs). */
static bool is_gone(int scope, uint64_t id)
{
	struct {
		struct file_handle head;
		uint64_t id;
	} handle = { .head = { .handle_bytes = sizeof(uint64_t), .handle_type = 0xfe /* FILEID_KERNFS */ }, .id = id };
	int fd = open_by_handle_at(scope, &handle.head, O_RDONLY | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd < 0 && errno == ESTALE;
}

/* Takes ended jobs off a map that is full. */
static void sweep(int map, int scope)
{
	static struct key gone[MAP_ENTRIES];
	struct key key, next;
	bool first = true;
	unsigned n = 0;

	for (;;) {
		union bpf_attr attr = { .map_fd = map, .key = first ? 0 : (uintptr_t)&key, .next_key = (uintptr_t)&next };

		if (bpf(BPF_MAP_GET_NEXT_KEY, &attr) < 0 || n == MAP_ENTRIES)
			break;
		key = next;
		first = false;
		if (key.cgroup != ANY && is_gone(scope, key.cgroup))
			gone[n++] = key;
	}
	while (n--) {
		union bpf_attr attr = { .map_fd = map, .key = (uintptr_t)&gone[n] };

		bpf(BPF_MAP_DELETE_ELEM, &attr);
	}
}

static int allow(int map, int scope, uint64_t job, const struct lease *own, char *why, size_t size)
{
	for (unsigned i = 0; i < own->devices; i++) {
		int rc = put(map, job, own->device[i]);

		if (rc < 0 && errno == E2BIG) {
			sweep(map, scope);
			rc = put(map, job, own->device[i]);
		}
		if (rc < 0) {
			snprintf(why, size, "couldn't allow a device in a BPF map: %s", strerror(errno));
			return -1;
		}
	}
	return 0;
}

/* Cuts the last component off a path; false if there is none. */
static bool parent(char *path)
{
	char *slash = strrchr(path, '/');

	if (!slash || slash == path)
		return false;
	*slash = '\0';
	return true;
}

int bpf_refuse(const char *step, const struct devices *devices, const struct lease *own, char *why, size_t size)
{
	char path[CGROUP_PATH_MAX];
	struct stat job;
	int scope = -1, map = -1, rv = -1;

	snprintf(path, sizeof(path), "%s", step);
	if (!parent(path) || stat(path, &job) < 0 || !parent(path) || (scope = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
		snprintf(why, size, "couldn't open the cgroups above %s: %s", step, strerror(errno));
		goto done;
	}
	/* Two that found no map would make two, and each refuse the other's job. The lock goes with the descriptor. */
	if (flock(scope, LOCK_EX) < 0) {
		snprintf(why, size, "couldn't lock %s: %s", path, strerror(errno));
		goto done;
	}
	map = find_map(scope);
	if (map < 0)
		map = make_map(scope, devices, why, size);
	if (map < 0) {
		rv = IS_OLD_KERNEL(errno) ? 1 : -1;
		goto done;
	}
	rv = allow(map, scope, job.st_ino, own, why, size); /* a cgroup's id is its inode's number */

done:
	if (map >= 0)
		close(map);
	if (scope >= 0)
		close(scope);
	return rv;
}
