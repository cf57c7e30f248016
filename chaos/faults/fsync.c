/* A disk that is slow to make durable, or fails to: preloaded into a node, told by a small file.
 *
 * The file named by TARRY_FSYNC holds two numbers: milliseconds that every fsync, fdatasync, msync and syncfs
 * takes longer, and the errno with which it fails (0: it does not). It is read at every call.
 *
 * To the file named by TARRY_FLUSHED each fsync and fdatasync that succeeds appends "inode end": up to where
 * that file had been written by pwrite when the sync began. A write to a file's beginning appends "inode 0":
 * the file is new. What lies behind the end would be lost with the power. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static int told(void)
{
    const char *path = getenv("TARRY_FSYNC");
    int delay_ms = 0, error = 0;
    char text[64];
    int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        ssize_t size = syscall(SYS_read, file, text, sizeof text - 1);
        syscall(SYS_close, file);
        text[size > 0 ? size : 0] = 0;
        sscanf(text, "%d %d", &delay_ms, &error);
    }
    if (delay_ms > 0) {
        struct timespec rest = { delay_ms / 1000, (delay_ms % 1000) * 1000000L };
        syscall(SYS_nanosleep, &rest, &rest); /* not libfaketime's */
    }
    return error;
}

#define FILES 65536
struct extent { ino_t inode; off_t end; };
static struct extent written[FILES];
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static off_t *end_of(ino_t inode)
{
    for (unsigned tried = 0; tried < FILES; tried++) {
        unsigned at = (inode + tried) % FILES;
        if (!written[at].inode)
            written[at].inode = inode;
        if (written[at].inode == inode)
            return &written[at].end;
    }
    abort(); /* more files than a run has */
}

static void note(ino_t inode, off_t end)
{
    const int mode = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC;
    const char *path = getenv("TARRY_FLUSHED");
    char text[64];
    int size = snprintf(text, sizeof text, "%llu %lld\n", (unsigned long long)inode, (long long)end);
    int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, mode, 0600) : -1;
    if (file >= 0) {
        if (syscall(SYS_write, file, text, size) != size)
            abort();
        syscall(SYS_close, file);
    }
}

static void wrote(int file, off_t at, ssize_t size)
{
    struct stat told;
    if (size <= 0 || !getenv("TARRY_FLUSHED") || fstat(file, &told))
        return;
    pthread_mutex_lock(&guard);
    off_t *end = end_of(told.st_ino);
    if (at == 0) {
        *end = 0;
        note(told.st_ino, 0);
    }
    if (*end < at + size)
        *end = at + size;
    pthread_mutex_unlock(&guard);
}

static struct extent begin_sync(int file)
{
    struct extent before = { 0, 0 };
    struct stat told;
    if (getenv("TARRY_FLUSHED") && !fstat(file, &told)) {
        pthread_mutex_lock(&guard);
        before = (struct extent) { told.st_ino, *end_of(told.st_ino) };
        pthread_mutex_unlock(&guard);
    }
    return before;
}

static int end_sync(struct extent before, int result)
{
    if (result == 0 && before.end > 0)
        note(before.inode, before.end);
    return result;
}

#define WRITTEN(name)                                                \
    ssize_t name(int file, const void *data, size_t size, off_t at)  \
    {                                                                \
        static ssize_t (*real)(int, const void *, size_t, off_t);    \
        if (!real)                                                   \
            *(void **)&real = dlsym(RTLD_NEXT, #name);               \
        ssize_t done = real(file, data, size, at);                   \
        wrote(file, at, done);                                       \
        return done;                                                 \
    }

WRITTEN(pwrite)
WRITTEN(pwrite64)

#define SLOWED(name, parameters, arguments, begin, end)              \
    int name parameters                                              \
    {                                                                \
        static int(*real) parameters;                                \
        int error = told();                                          \
        if (error) {                                                 \
            errno = error;                                           \
            return -1;                                               \
        }                                                            \
        if (!real)                                                   \
            *(void **)&real = dlsym(RTLD_NEXT, #name);               \
        begin                                                        \
        return end(real arguments);                                  \
    }

#define BEGIN struct extent before = begin_sync(file);
#define END(result) end_sync(before, result)
SLOWED(fsync, (int file), (file), BEGIN, END)
SLOWED(fdatasync, (int file), (file), BEGIN, END)
SLOWED(syncfs, (int file), (file), , )
SLOWED(msync, (void *start, size_t size, int flags), (start, size, flags), , )
