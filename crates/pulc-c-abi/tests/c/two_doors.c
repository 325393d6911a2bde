/* Two copies of libpulc.so in one process, opened RTLD_LOCAL from two files: they must be one engine. Also what a fork of the
 * process is told, and that bad arguments are errors. Arguments: the two files. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <pulc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(condition)                                                                                                          \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            fprintf(stderr, "two_doors: line %d: %s does not hold\n", __LINE__, #condition);                                     \
            exit(1);                                                                                                             \
        }                                                                                                                        \
    } while (0)

struct door {
    int (*attach)(void);
    int (*rank)(uint32_t *);
    int (*open)(const char *, int, pulc_port **);
    int (*close)(pulc_port *);
    int (*address_new)(uint32_t, const char *, pulc_address **);
    int (*send)(pulc_port *, const pulc_address *, uint64_t, const void *, size_t, int64_t);
    int (*recv)(pulc_port *, uint32_t, const uint64_t *, void *, size_t, int64_t, pulc_envelope *);
    int (*select)(pulc_port *const *, size_t, int64_t, size_t *);
    const char *(*last_error)(void);
};

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    NEED(found != NULL);
    return found;
}

static struct door load(const char *file)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fprintf(stderr, "two_doors: %s\n", dlerror());
    NEED(library != NULL);
    struct door door;
    *(void **)&door.attach = symbol(library, "pulc_attach");
    *(void **)&door.rank = symbol(library, "pulc_rank");
    *(void **)&door.open = symbol(library, "pulc_port_open");
    *(void **)&door.close = symbol(library, "pulc_port_close");
    *(void **)&door.address_new = symbol(library, "pulc_address_new");
    *(void **)&door.send = symbol(library, "pulc_send");
    *(void **)&door.recv = symbol(library, "pulc_recv");
    *(void **)&door.select = symbol(library, "pulc_select");
    *(void **)&door.last_error = symbol(library, "pulc_last_error");
    return door;
}

static void *attach(void *door)
{
    return ((struct door *)door)->attach() == PULC_OK ? door : NULL;
}

int main(int count, char **files)
{
    NEED(count == 3);
    struct door first = load(files[1]), second = load(files[2]);
    NEED(first.attach != second.attach);
    uint32_t rank;
    NEED(first.rank(&rank) == PULC_ERR_NOT_ATTACHED);

    /* Both at the same time: one of them makes the engine. */
    pthread_t a, b;
    void *attached;
    NEED(pthread_create(&a, NULL, attach, &first) == 0 && pthread_create(&b, NULL, attach, &second) == 0);
    NEED(pthread_join(a, &attached) == 0 && attached != NULL);
    NEED(pthread_join(b, &attached) == 0 && attached != NULL);

    pulc_port *port, *other;
    pulc_address *address;
    NEED(first.open("here", PULC_ORDERED, &port) == PULC_OK);
    NEED(second.open("here", PULC_ORDERED, &other) == PULC_ERR_NAME);
    NEED(strstr(second.last_error(), "already open") != NULL);
    NEED(second.open("there", PULC_ORDERED, &other) == PULC_OK);
    NEED(second.address_new(0, "here", &address) == PULC_OK);
    NEED(second.send(other, address, 5, "ball", 4, PULC_FOREVER) == PULC_OK);

    /* One wait for what both opened. */
    pulc_port *both[2] = {other, port};
    size_t index = 9;
    NEED(second.select(both, 2, 10000000, &index) == PULC_OK && index == 1);
    char buffer[8];
    pulc_envelope envelope;
    NEED(first.recv(port, PULC_ANY_SOURCE, NULL, buffer, 2, 0, &envelope) == PULC_ERR_TRUNCATE && envelope.len == 4);
    NEED(first.recv(port, 0, NULL, buffer, sizeof buffer, 0, &envelope) == PULC_OK);
    NEED(envelope.tag == 5 && envelope.len == 4 && memcmp(buffer, "ball", 4) == 0);
    NEED(first.recv(port, 0, NULL, buffer, sizeof buffer, 0, NULL) == PULC_ERR_TIMEOUT);

    NEED(first.open(NULL, PULC_ORDERED, &port) == PULC_ERR_ARGUMENT);
    NEED(first.open("x", 7, &port) == PULC_ERR_ARGUMENT);
    NEED(first.open("\xff", PULC_ORDERED, &port) == PULC_ERR_NAME);
    NEED(first.open("x", PULC_ORDERED, NULL) == PULC_ERR_ARGUMENT);
    NEED(first.send(NULL, address, 0, "", 0, 0) == PULC_ERR_ARGUMENT);
    NEED(first.send(other, address, 0, NULL, 8, 0) == PULC_ERR_ARGUMENT);
    NEED(first.rank(NULL) == PULC_ERR_ARGUMENT);

    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int refused = first.send(other, address, 0, "x", 1, 0) == PULC_ERR_FORKED && second.attach() == PULC_ERR_FORKED &&
                      first.recv(port, PULC_ANY_SOURCE, NULL, buffer, sizeof buffer, 0, NULL) == PULC_ERR_FORKED;
        _exit(refused ? 7 : 1);
    }
    int status;
    NEED(child > 0 && waitpid(child, &status, 0) == child);
    NEED(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    NEED(first.send(other, address, 0, "x", 1, 0) == PULC_OK);

    /* A null handle in the middle, a port closed by the other copy. */
    pulc_port *broken[2] = {other, NULL};
    NEED(first.select(broken, 2, 0, &index) == PULC_ERR_ARGUMENT);
    NEED(first.close(other) == PULC_OK);
    puts("one engine");
    return 0;
}
