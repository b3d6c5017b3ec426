/* A disk that fails when a test says so: loaded before the C library, by the server under test alone.
 *
 * Only calls on the file named by FAILING_FILE are concerned. The file named by FAILING_DISK holds
 * numbers of 64 bits: the error of a sync and how many of the next syncs fail with it (-1: all),
 * the same of a write, and milliseconds that each sync takes longer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

struct failing {
    int64_t error;
    int64_t count;
};

struct setting {
    struct failing sync;
    struct failing write;
    int64_t sync_millis;
};

static struct setting *setting;
static char name[PATH_MAX];

__attribute__((constructor)) static void open_setting(void)
{
    const char *path = getenv("FAILING_DISK"), *failing = getenv("FAILING_FILE");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0 || !failing)
        return;
    snprintf(name, sizeof name, "%s", failing);
    void *mapped = mmap(NULL, sizeof *setting, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    setting = mapped == MAP_FAILED ? NULL : mapped;
    close(file);
}

static int is_concerned(int file)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = setting ? readlink(link, path, sizeof path - 1) : -1;
    if (length < 0)
        return 0;
    path[length] = 0;
    return !strcmp(path, name);
}

/* Whether this call is one of those that fail. */
static int fails(struct failing *failing)
{
    int64_t count = __atomic_load_n(&failing->count, __ATOMIC_SEQ_CST);
    while (count > 0)
        if (__atomic_compare_exchange_n(&failing->count, &count, count - 1, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST))
            break;
    if (count)
        errno = (int)failing->error;
    return count != 0;
}

static int sync_file(int file, const char *call)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, call);
    if (is_concerned(file)) {
        int64_t millis = setting->sync_millis;
        struct timespec pause = {millis / 1000, millis % 1000 * 1000000};
        nanosleep(&pause, NULL);
        if (fails(&setting->sync))
            return -1;
    }
    return next(file);
}

int fsync(int file)
{
    return sync_file(file, "fsync");
}

int fdatasync(int file)
{
    return sync_file(file, "fdatasync");
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t position)
{
    ssize_t (*next)(int, const void *, size_t, off64_t) =
        (ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    if (is_concerned(file) && fails(&setting->write))
        return -1;
    return next(file, bytes, count, position);
}
