/* A disk that is slow to make durable, or fails to: preloaded into a node, told by a small file.
 *
 * The file named by TARRY_FSYNC holds two numbers: milliseconds that every fsync, fdatasync, msync and syncfs
 * takes longer, and the errno with which it fails (0: it does not). It is read at every call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
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

#define SLOWED(name, parameters, arguments)                          \
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
        return real arguments;                                       \
    }

SLOWED(fsync, (int file), (file))
SLOWED(fdatasync, (int file), (file))
SLOWED(syncfs, (int file), (file))
SLOWED(msync, (void *start, size_t size, int flags), (start, size, flags))
