/* Preloaded into a broker: fsync, fdatasync and msync fail once with EIO, or are slow, if a file requests it.
 *
 * FAULTS_SYNC_TRIGGER=<path>: a call on a file below a folder "commitlog" (msync: any) removes <path>, if it exists,
 * and fails with EIO without having written anything. While <path>.slow exists, each such call takes 200 ms longer.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int concerns(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0)
        return 0;
    path[size] = 0;
    return strstr(path, "/commitlog/") != NULL;
}

static int fails(void)
{
    const char *trigger = getenv("FAULTS_SYNC_TRIGGER");
    char slow[4096];
    if (trigger == NULL)
        return 0;
    snprintf(slow, sizeof slow, "%s.slow", trigger);
    if (access(slow, F_OK) == 0)
        usleep(200 * 1000);
    if (unlink(trigger) != 0)
        return 0;
    errno = EIO;
    return 1;
}

int fsync(int fd)
{
    static int (*real)(int);
    if (real == NULL)
        real = dlsym(RTLD_NEXT, "fsync");
    return concerns(fd) && fails() ? -1 : real(fd);
}

int fdatasync(int fd)
{
    static int (*real)(int);
    if (real == NULL)
        real = dlsym(RTLD_NEXT, "fdatasync");
    return concerns(fd) && fails() ? -1 : real(fd);
}

int msync(void *start, size_t size, int flags)
{
    static int (*real)(void *, size_t, int);
    if (real == NULL)
        real = dlsym(RTLD_NEXT, "msync");
    return fails() ? -1 : real(start, size, flags);
}
