/* A wall clock that can be set for one program: loaded before libc, it adds the seconds in the file $PULC_STATE_DIR.clock (8 bytes, little endian), whenever it is asked. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t none, *shift = &none;
static int (*original)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    char path[4096];
    const char *directory = getenv("PULC_STATE_DIR");
    original = dlsym(RTLD_NEXT, "clock_gettime");
    if (!directory || snprintf(path, sizeof path, "%s.clock", directory) >= (int)sizeof path)
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    void *at = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED)
        shift = at;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (!original)
        original = dlsym(RTLD_NEXT, "clock_gettime");
    int result = original(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME)
        time->tv_sec += *shift;
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *time = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}
