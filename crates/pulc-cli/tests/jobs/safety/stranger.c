/* A process of another user that tries to reach into the processes given by number. Says `reached: ...` for everything that works
 * and `tried N ways` at the end. Started by tests of pulc-cli as that user, and as root to see that its ways are ways. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int tried;

static void judge(int worked, const char *what, long pid) {
    tried++;
    if (worked)
        printf("reached: %s of %ld\n", what, pid);
}

static void open_file(long pid, const char *name, int flags) {
    char path[256];
    snprintf(path, sizeof path, "/proc/%ld/%s", pid, name);
    int fd = open(path, flags | O_CLOEXEC);
    char byte;
    /* Some of these files open for everybody and refuse at the first read; those of a process that has just ended are empty. */
    int worked = fd >= 0 && (flags != O_RDONLY || read(fd, &byte, 1) > 0);
    judge(worked, name, pid);
    if (fd >= 0)
        close(fd);
}

static void open_folder(long pid, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "/proc/%ld/%s", pid, name);
    DIR *folder = opendir(path);
    judge(folder != NULL && readdir(folder) != NULL, name, pid);
    if (folder)
        closedir(folder);
}

int main(int argc, char **argv) {
    for (int at = 1; at < argc; at++) {
        long pid = atol(argv[at]);
        open_file(pid, "mem", O_RDWR);
        open_file(pid, "environ", O_RDONLY);
        open_file(pid, "maps", O_RDONLY);
        open_file(pid, "auxv", O_RDONLY);
        open_folder(pid, "fd");
        open_folder(pid, "map_files");
        for (int fd = 0; fd < 48; fd++) {
            char name[16];
            snprintf(name, sizeof name, "fd/%d", fd);
            open_file(pid, name, O_RDWR);
        }
        judge(ptrace(PTRACE_SEIZE, pid, 0, 0) == 0 && ptrace(PTRACE_DETACH, pid, 0, 0) + 2, "ptrace", pid);
        char byte = 0;
        struct iovec here = {&byte, 1}, there = {(void *)&main, 1};
        /* An address that is not there answers EFAULT only to those who may ask. */
        judge(process_vm_readv(pid, &here, 1, &there, 1, 0) >= 0 || errno == EFAULT, "process_vm_readv", pid);
        judge(process_vm_writev(pid, &here, 1, &there, 1, 0) >= 0 || errno == EFAULT, "process_vm_writev", pid);
        int pidfd = syscall(SYS_pidfd_open, pid, 0);
        for (int fd = 3; pidfd >= 0 && fd < 24; fd++) {
            int stolen = syscall(SYS_pidfd_getfd, pidfd, fd, 0);
            judge(stolen >= 0 || errno == EBADF, "pidfd_getfd", pid);
            if (stolen >= 0)
                close(stolen);
        }
        judge(kill(pid, 0) == 0, "signal", pid);
    }
    printf("tried %d ways\n", tried);
    return 0;
}
