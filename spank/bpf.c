/*
 * Controls access to devices in cgroup v2, where BPF programs decide whether a process may open a device. Slurm
 * (22.05, cgroup_v2.c) attaches its own programs to the job's cgroup (with BPF_F_ALLOW_OVERRIDE), to the step's "user"
 * cgroup and to the cgroups of the tasks. For a task, the kernel runs the programs of the nearest cgroup that has any,
 * and those that were attached to the cgroups above it with BPF_F_ALLOW_MULTI. The plugin's program could be attached
 * to three kinds of cgroups:
 *
 *   job                the kernel would reject either the plugin's or Slurm's program, because their attach flags differ
 *   step               the plugin's program would replace Slurm's programs for the job, a batch step's only ones
 *   above all jobs     with BPF_F_ALLOW_MULTI, the kernel runs the plugin's program in addition to Slurm's programs
 *
 * The plugin therefore attaches one program to slurmstepd.scope, which is the cgroup of all slurmstepd processes and is
 * called *the scope* in this file. The first task after a reboot loads the program, and creates the map that holds each
 * job's devices. Both exist as long as the scope does. Jobs without a lease need no entry, because the program denies all
 * slice devices by default. Root's processes are exempt.
 *
 * The plugin takes no lock, because a user could then block it: every user can open, and therefore lock, the scope's
 * directory, and can stop their own task at any instruction (scancel --signal=STOP). Instead, the plugin uses the
 * kernel's list of programs. This list is in order of attachment, and a program is complete before it is attached, so
 * the first program with the plugin's name is valid and always remains the first. If there is none, a task attaches one
 * and rereads the list. It then uses the map of the first program with the plugin's name, and detaches all later ones,
 * including those that other tasks attached.
 */
#include "cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAME "caelum"     /* the name of the program and its map */
#define MAP_ENTRIES 16384 /* the node's devices, and the leased devices of jobs; sweep() cleans a full map */
#define LEVELS 10         /* the number of cgroup levels that the program checks; with systemd, a job has level 3 */

/*
 * The cgroup id in keys that apply to all cgroups. No cgroup has this id. An id of 0 would be ambiguous, because the
 * kernel returns 0 for a level that does not exist.
 */
#define ANY UINT64_MAX

/*
 * The key {ANY, device} means that the device needs a lease, and {the job's cgroup, device} that it is part of the
 * job's lease.
 */
struct key {
	uint64_t cgroup;
	struct device device;
};

/*
 * Declares x and sets all its bytes to 0. The kernel rejects a bpf_attr with a nonzero byte after the last member that
 * a command uses. An initializer may not clear every byte: gcc 15 clears only the named member of a union.
 */
#define CLEARED(type, x) \
	type x; \
	memset(&(x), 0, sizeof(x))

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int put(int map, uint64_t cgroup, struct device device)
{
	struct key key = { cgroup, device };
	uint32_t yes = 1;
	CLEARED(union bpf_attr, attr);

	attr.map_fd = map;
	attr.key = (uintptr_t)&key;
	attr.value = (uintptr_t)&yes;
	attr.flags = BPF_ANY;
	return bpf(BPF_MAP_UPDATE_ELEM, &attr);
}

/*
 * If the program has the plugin's name, returns a descriptor for it, and sets *map_id to the id of its map. Otherwise,
 * returns -1.
 */
static int open_program(uint32_t id, uint32_t *map_id)
{
	CLEARED(struct bpf_prog_info, info);
	CLEARED(union bpf_attr, get);
	CLEARED(union bpf_attr, ask);
	int program;

	get.prog_id = id;
	program = bpf(BPF_PROG_GET_FD_BY_ID, &get);
	if (program < 0)
		return -1;
	info.nr_map_ids = 1;
	info.map_ids = (uintptr_t)map_id;
	ask.info.bpf_fd = program;
	ask.info.info_len = sizeof(info);
	ask.info.info = (uintptr_t)&info;
	if (bpf(BPF_OBJ_GET_INFO_BY_FD, &ask) == 0 && strcmp(info.name, NAME) == 0 && info.nr_map_ids == 1)
		return program;
	close(program);
	return -1;
}

static void detach(int scope, int program)
{
	CLEARED(union bpf_attr, attr);

	attr.target_fd = scope;
	attr.attach_type = BPF_CGROUP_DEVICE;
	attr.attach_bpf_fd = program;
	bpf(BPF_PROG_DETACH, &attr); /* another task may already have detached the program */
}

/*
 * Returns a descriptor for the map of the first program with the plugin's name on the scope, or -1 with errno 0 if
 * there is none. On error, returns -1 with errno set. Detaches all later programs with this name: their maps contain no
 * jobs, so they would deny every job its devices.
 */
static int find_map(int scope)
{
	static uint32_t ids[64]; /* BPF_CGROUP_MAX_PROGS */
	CLEARED(union bpf_attr, query);
	int map = -1, error = 0;

	query.query.target_fd = scope;
	query.query.attach_type = BPF_CGROUP_DEVICE;
	query.query.prog_ids = (uintptr_t)ids;
	query.query.prog_cnt = sizeof(ids) / sizeof(ids[0]);
	if (bpf(BPF_PROG_QUERY, &query) < 0)
		return -1;
	for (unsigned i = 0; i < query.query.prog_cnt && !error; i++) {
		uint32_t map_id = 0;
		int program = open_program(ids[i], &map_id);

		if (program < 0)
			continue;
		if (map < 0) {
			CLEARED(union bpf_attr, get);

			get.map_id = map_id;
			map = bpf(BPF_MAP_GET_FD_BY_ID, &get);
			error = map < 0 ? errno : 0;
		} else {
			detach(scope, program);
		}
		close(program);
	}
	errno = error;
	return map;
}

/*
 * Writes the instructions of the program, which decides whether the current process may open a device. The program's
 * context is struct bpf_cgroup_dev_ctx: the type in the lower half of the first word, then the major and minor numbers.
 * Root may open every device. Other users may open devices that need no lease, and devices that the map lists for one
 * of the process's cgroups. Returns the number of instructions.
 */
static unsigned assemble(struct bpf_insn *insn, int map)
{
	unsigned n = 0, jump[LEVELS + 3], jumps = 0;

#define EMIT(...) (insn[n] = (struct bpf_insn){ __VA_ARGS__ }, n++)
#define JUMP_IF(...) (jump[jumps++] = n, EMIT(__VA_ARGS__))
#define CALL(function) EMIT(.code = BPF_JMP | BPF_CALL, .imm = (function))
#define LOOK_UP() /* looks up the key at r10 - 16; r0 is NULL if the map does not contain the key */ \
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

static int load(const struct bpf_insn *insn, unsigned n)
{
	CLEARED(union bpf_attr, attr);

	attr.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
	attr.insns = (uintptr_t)insn;
	attr.insn_cnt = n;
	attr.license = (uintptr_t) "";
	memcpy(attr.prog_name, NAME, sizeof(NAME));
	return bpf(BPF_PROG_LOAD, &attr);
}

/*
 * Reports whether the kernel is too old for the program, which needs bpf_get_current_ancestor_cgroup_id. Old kernels do
 * not provide this function to cgroup device programs (6.18 does). They reject the program, but accept a cgroup device
 * program that does not call it. If the kernel rejects both, it is not too old, and the error has another cause.
 */
static bool lacks_helper(int error)
{
	static const struct bpf_insn allow[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 1 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	int program = error == EINVAL ? load(allow, sizeof(allow) / sizeof(allow[0])) : -1;

	if (program >= 0)
		close(program);
	return program >= 0;
}

/* Creates a map with the devices. Returns a descriptor for it, or -1 with errno. */
static int make_map(const struct devices *devices)
{
	CLEARED(union bpf_attr, create);
	int map;

	create.map_type = BPF_MAP_TYPE_HASH;
	create.key_size = sizeof(struct key);
	create.value_size = sizeof(uint32_t);
	create.max_entries = MAP_ENTRIES;
	memcpy(create.map_name, NAME, sizeof(NAME));
	map = bpf(BPF_MAP_CREATE, &create);
	for (unsigned i = 0; map >= 0 && i < devices->n; i++) {
		if (put(map, ANY, devices->device[i]) < 0) {
			int error = errno;

			close(map);
			errno = error;
			map = -1;
		}
	}
	return map;
}

/* Attaches a new program to the scope. Returns 0 or an error value of cgroup_refuse. */
static int attach(int scope, const struct devices *devices, char *why, size_t size)
{
	static struct bpf_insn insn[200];
	CLEARED(union bpf_attr, attr);
	const char *what = "create a BPF map";
	int map = make_map(devices);
	int program = -1, rv = -1;

	if (map < 0)
		goto done;
	what = "load a BPF program";
	program = load(insn, assemble(insn, map));
	if (program < 0)
		goto done;
	what = "attach a BPF program";
	attr.target_fd = scope;
	attr.attach_type = BPF_CGROUP_DEVICE;
	attr.attach_flags = BPF_F_ALLOW_MULTI;
	attr.attach_bpf_fd = program;
	rv = bpf(BPF_PROG_ATTACH, &attr);

done:
	if (rv < 0) {
		int error = errno;

		rv = map >= 0 && program < 0 && lacks_helper(error) ? CGROUP_UNSUPPORTED : -1;
		snprintf(why, size, "couldn't %s for devices: %s", what, strerror(error));
	}
	if (map >= 0)
		close(map);
	if (program >= 0)
		close(program);
	return rv;
}

/* Reports whether the cgroup with the given id has been removed. kernfs does not reuse ids. */
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

/* Removes the entries of ended jobs from a full map. */
static void sweep(int map, int scope)
{
	static struct key gone[MAP_ENTRIES];
	struct key key, next;
	bool first = true;
	unsigned n = 0;

	for (;;) {
		CLEARED(union bpf_attr, attr);

		attr.map_fd = map;
		attr.key = first ? 0 : (uintptr_t)&key;
		attr.next_key = (uintptr_t)&next;
		if (bpf(BPF_MAP_GET_NEXT_KEY, &attr) < 0 || n == MAP_ENTRIES)
			break;
		key = next;
		first = false;
		if (key.cgroup != ANY && is_gone(scope, key.cgroup))
			gone[n++] = key;
	}
	while (n--) {
		CLEARED(union bpf_attr, attr);

		attr.map_fd = map;
		attr.key = (uintptr_t)&gone[n];
		bpf(BPF_MAP_DELETE_ELEM, &attr);
	}
}

/* Adds the devices of the job's lease to the map. Returns 0, or -1 with the reason in why. */
static int allow(int map, int scope, uint64_t job, const struct lease *own, char *why, size_t size)
{
	for (unsigned i = 0; i < own->devices; i++) {
		int rc = put(map, job, own->device[i]);

		if (rc < 0 && errno == E2BIG) {
			sweep(map, scope);
			rc = put(map, job, own->device[i]);
		}
		if (rc < 0) {
			snprintf(why, size, "couldn't add a device to the BPF map: %s", strerror(errno));
			return -1;
		}
	}
	return 0;
}

/*
 * Makes the scope's directory unreadable for users, so that they cannot lock it. Slurm makes it readable for all users
 * and, when a step starts or ends, locks it without a time limit (22.05 cgroup_v2.c), so a user who held the lock could
 * prevent all steps from starting. The cgroups below the directory remain accessible.
 */
static void restrict_scope(int scope)
{
	struct stat st;

	if (fstat(scope, &st) == 0 && (st.st_mode & (S_IRGRP | S_IROTH)))
		fchmod(scope, S_IRWXU | S_IXGRP | S_IXOTH);
}

int bpf_refuse(const char *step, const struct devices *devices, const struct lease *own, char *why, size_t size)
{
	char path[CGROUP_PATH_MAX];
	struct stat job;
	int scope = -1, map = -1, rv = -1;

	snprintf(path, sizeof(path), "%s", step);
	if (!cgroup_parent(path) || stat(path, &job) < 0 || !cgroup_parent(path) || (scope = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
		snprintf(why, size, "couldn't open the cgroups above %s: %s", step, strerror(errno));
		goto done;
	}
	restrict_scope(scope);
	map = find_map(scope);
	if (map < 0 && errno == 0) {
		rv = attach(scope, devices, why, size);
		if (rv != 0)
			goto done;
		map = find_map(scope); /* another task may already have attached its program */
	}
	if (map < 0) {
		snprintf(why, size, "couldn't find the BPF program for devices on %s: %s", path, strerror(errno));
		rv = -1;
		goto done;
	}
	rv = allow(map, scope, job.st_ino, own, why, size); /* the id of a cgroup is its inode number */

done:
	if (map >= 0)
		close(map);
	if (scope >= 0)
		close(scope);
	return rv;
}
