/* Strains every function of an allocator: sizes around all borders, several threads that hand blocks to each other, forks in the midst
 * of it. Each block is filled with a pattern of its own and checked when it is given back. Knows nothing of PULC. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, SLOTS = 64, STEPS = 3000, FORKS = 12 };

struct slot {
    pthread_mutex_t lock;
    unsigned char *bytes;
    size_t len;
    unsigned char seed;
};

static struct slot slots[SLOTS];

static void fail(const char *what) {
    printf("%s\n", what);
    fflush(stdout);
    _exit(1);
}

static uint64_t next(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static void fill(unsigned char *bytes, size_t len, unsigned char seed) {
    for (size_t i = 0; i < len; i += 97)
        bytes[i] = (unsigned char)(seed + i);
    if (len)
        bytes[len - 1] = seed;
}

static void check(const unsigned char *bytes, size_t len, unsigned char seed) {
    for (size_t i = 0; i + 1 < len; i += 97)
        if (bytes[i] != (unsigned char)(seed + i))
            fail("a block has other bytes than were written");
    if (len && bytes[len - 1] != seed)
        fail("the last byte of a block has changed");
}

static size_t some_length(uint64_t *seed) {
    static const size_t around[] = {1, 100, 4000, 4096, 5000, 16384, 65535, 65536, 65537, 300000, 1 << 20};
    return around[next(seed) % (sizeof around / sizeof *around)] + next(seed) % 50;
}

static unsigned char *some_block(size_t len, uint64_t *seed) {
    void *block = NULL;
    size_t align = (size_t)64 << next(seed) % 9;
    switch (next(seed) % 6) {
    case 0: block = malloc(len); break;
    case 1:
        block = calloc(1, len);
        for (size_t i = 0; block && i < len; i++)
            if (((unsigned char *)block)[i])
                fail("calloc gave bytes that are not zero");
        break;
    case 2:
        if (posix_memalign(&block, align, len))
            fail("posix_memalign failed");
        break;
    case 3: block = memalign(align, len); break;
    case 4: block = aligned_alloc(align, len); break;
    default: block = reallocarray(NULL, 1, len); align = 16; break;
    }
    if (!block)
        fail("there is no memory");
    if ((uintptr_t)block % 16)
        fail("a block is not aligned");
    if (malloc_usable_size(block) < len)
        fail("a block is shorter than it says");
    return block;
}

static void *work(void *argument) {
    uint64_t seed = (uintptr_t)argument;
    for (int step = 0; step < STEPS; step++) {
        struct slot *slot = &slots[next(&seed) % SLOTS];
        pthread_mutex_lock(&slot->lock);
        if (slot->bytes && next(&seed) % 3 == 0) {
            size_t len = some_length(&seed), both = len < slot->len ? len : slot->len;
            unsigned char last = slot->seed;
            unsigned char *bytes = realloc(slot->bytes, len);
            if (!bytes)
                fail("there is no memory for a longer block");
            for (size_t i = 0; i + 1 < both; i += 97)
                if (bytes[i] != (unsigned char)(last + i))
                    fail("realloc lost bytes");
            slot->bytes = bytes;
            slot->len = len;
            fill(bytes, len, slot->seed);
        } else if (slot->bytes) {
            check(slot->bytes, slot->len, slot->seed);
            free(slot->bytes);
            slot->bytes = NULL;
        } else {
            slot->len = some_length(&seed);
            slot->seed = (unsigned char)next(&seed);
            slot->bytes = some_block(slot->len, &seed);
            fill(slot->bytes, slot->len, slot->seed);
        }
        pthread_mutex_unlock(&slot->lock);
    }
    return NULL;
}

/* A child has its parent's bytes, can use them and everything else, and its parent does not see what it writes. */
static void fork_once(void) {
    size_t len = 700000;
    unsigned char *own = malloc(len);
    fill(own, len, 77);
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        fail("no fork");
    if (child == 0) {
        check(own, len, 77);
        fill(own, len, 3);
        unsigned char *more = malloc(2 * len);
        fill(more, 2 * len, 5);
        check(more, 2 * len, 5);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            check(own, len, 3);
            _exit(0);
        }
        int status = 1;
        waitpid(grandchild, &status, 0);
        own = realloc(own, 3 * len);
        for (size_t i = 0; i + 1 < len; i += 97)
            if (own[i] != (unsigned char)(3 + i))
                fail("realloc in a child lost bytes");
        free(own);
        free(more);
        _exit(status != 0);
    }
    int status = 1;
    if (waitpid(child, &status, 0) != child || status != 0)
        fail("a child failed");
    check(own, len, 77);
    free(own);
}

static int lies_in_arena(const void *block) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int found = -1;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        if (strstr(line, "pulc-arena") && sscanf(line, "%lx-%lx", &begin, &end) == 2 && found != 1)
            found = (uintptr_t)block >= begin && (uintptr_t)block < end;
    }
    if (maps)
        fclose(maps);
    return found;
}

int main(void) {
    pthread_t threads[THREADS];
    char *first = malloc(1 << 20);
    int where = lies_in_arena(first);
    printf("%s\n", where < 0 ? "there is no arena" : where ? "long blocks lie in the arena" : "long blocks lie elsewhere");
    free(first);
    free(NULL);
    errno = 0;
    volatile size_t huge = SIZE_MAX / 2;
    if (calloc(huge, 3) || errno != ENOMEM)
        fail("a product that is too large was given out");
    for (int i = 0; i < SLOTS; i++)
        pthread_mutex_init(&slots[i].lock, NULL);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < FORKS; i++)
        fork_once();
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].bytes) {
            check(slots[i].bytes, slots[i].len, slots[i].seed);
            free(slots[i].bytes);
        }
    printf("all bytes were right\n");
    return 0;
}
