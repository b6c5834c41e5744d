/*
 * Programs such as UCX look into /sys/class/infiniband and /dev/infiniband before they ask libibverbs. Here the program
 * gets a mount namespace of its own, in which both folders are there. Their parents are laid anew, in memory, with
 * everything that they had mounted into them: so nothing outside changes, and what is in them stays what it is. Who is
 * not root gets a user namespace for that, in which he is who he was.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nic.h"

enum { GIDS = 16, FILE_MODE = 0444, DIR_MODE = 0755 };
#define IB "/sys/class/infiniband"
#define PORT IB "/edge0/ports/1"

static int failed(const char *what, const char *name)
{
	fprintf(stderr, "edge-verbs: --sysfs: %s %s: %s\n", what, name, strerror(errno));
	return -1;
}

static int write_file(const char *path, const char *format, ...)
{
	char text[128];
	va_list va;
	va_start(va, format);
	int n = vsnprintf(text, sizeof text, format, va);
	va_end(va);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, FILE_MODE);
	bool ok = fd >= 0 && write(fd, text, (size_t)n) == n;
	if (fd >= 0)
		close(fd);
	return ok ? 0 : failed("writing", path);
}

/* Enters namespaces: of mounts, and of users if it takes that. */
static int enter(void)
{
	unsigned uid = geteuid(), gid = getegid();
	if (unshare(CLONE_NEWNS) != 0) {
		if (unshare(CLONE_NEWNS | CLONE_NEWUSER) != 0) {
			fprintf(stderr, "edge-verbs: --sysfs: this user may not make a namespace (%s); start it as root, or see "
			        "user.max_user_namespaces in sysctl\n", strerror(errno));
			return -1;
		}
		if (write_file("/proc/self/setgroups", "deny") != 0 ||
		    write_file("/proc/self/uid_map", "%u %u 1", uid, uid) != 0 ||
		    write_file("/proc/self/gid_map", "%u %u 1", gid, gid) != 0)
			return -1;
	}
	return mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) == 0 ? 0 : failed("mounting", "/");
}

/* Puts what was in a folder into the one that lies over it. */
static int again(int old, const struct dirent *e, const char *dir)
{
	char from[512], to[512];
	struct stat st;
	snprintf(from, sizeof from, "/proc/self/fd/%d/%s", old, e->d_name);
	snprintf(to, sizeof to, "%s/%s", dir, e->d_name);
	if (fstatat(old, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return 0; /* it has just gone */
	if (S_ISLNK(st.st_mode)) {
		char target[512] = "";
		return readlinkat(old, e->d_name, target, sizeof target - 1) > 0 && symlink(target, to) == 0 ? 0 :
			failed("linking", to);
	}
	int fd = S_ISDIR(st.st_mode) ? mkdir(to, DIR_MODE) : open(to, O_WRONLY | O_CREAT | O_CLOEXEC, FILE_MODE);
	if (fd > 0)
		close(fd);
	if (fd < 0 || mount(from, to, NULL, MS_BIND | MS_REC, NULL) != 0)
		return failed("mounting", to);
	return 0;
}

/* Lays a folder anew, without an entry of that name. */
static int lay(const char *dir, const char *without)
{
	int old = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = old >= 0 ? fdopendir(dup(old)) : NULL;
	if (list == NULL)
		return failed("reading", dir);
	int err = mount("edge-verbs", dir, "tmpfs", MS_NOSUID, "mode=755") == 0 ? 0 : failed("mounting over", dir);
	for (const struct dirent *e; err == 0 && (e = readdir(list)) != NULL;)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && strcmp(e->d_name, without) != 0)
			err = again(old, e, dir);
	closedir(list);
	close(old);
	return err;
}

static int make_dirs(void)
{
	static const char *const dirs[] = { IB, IB "/edge0", IB "/edge0/device", IB "/edge0/ports", PORT, PORT "/gid_attrs",
		PORT "/gid_attrs/types", PORT "/gid_attrs/ndevs", "/dev/infiniband" };
	for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
		if (mkdir(dirs[i], DIR_MODE) != 0)
			return failed("making", dirs[i]);
	return 0;
}

int nic_files(void)
{
	static const char verbs[] = "/dev/infiniband/uverbs0";
	if (enter() != 0 || lay("/sys/class", "infiniband") != 0 || lay("/dev", "infiniband") != 0 || make_dirs() != 0)
		return -1;
	int err = write_file(IB "/edge0/device/numa_node", "-1\n");
	for (int i = 0; i < GIDS && err == 0; i++) {
		char types[128], ndevs[128];
		snprintf(types, sizeof types, PORT "/gid_attrs/types/%d", i);
		snprintf(ndevs, sizeof ndevs, PORT "/gid_attrs/ndevs/%d", i);
		err = write_file(types, "RoCE v2\n") != 0 || write_file(ndevs, "lo\n") != 0 ? -1 : 0;
	}
	if (err != 0 || write_file(verbs, "") != 0)
		return -1;
	return mount("/dev/null", verbs, NULL, MS_BIND, NULL) == 0 ? 0 : failed("mounting", verbs); /* nobody uses it */
}
