/* Dice, memory of a step, and the waiting for everything that is under way. */
#include "random.h"
#include <stdlib.h>
#include <string.h>

#define WORKS 4096
#define LOANS 16384

static struct work works[WORKS];
static int begun;
static void *loans[LOANS];
static int lent;

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

struct dice dice_of(uint64_t a, uint64_t b, uint64_t c) {
    struct dice dice = {mix(a + 0x9e3779b97f4a7c15u) ^ mix(b * 3 + 1) ^ mix(c * 5 + 2)};
    return dice;
}

uint64_t roll(struct dice *dice) {
    dice->state += 0x9e3779b97f4a7c15u;
    return mix(dice->state);
}

int below(struct dice *dice, int n) {
    return (int)(roll(dice) % (uint64_t)n);
}

int cell(uint64_t salt, int from, int to, int i) {
    return (int)(mix(salt + (uint64_t)from * 0x10001 + (uint64_t)to * 0x1000003 + (uint64_t)i * 0x9e3779b9u) & 0x7fffffff);
}

struct work *start_work(const char *what) {
    if (begun == WORKS)
        fail("more than %d requests in one step", WORKS);
    struct work *work = &works[begun++];
    memset(work, 0, sizeof *work);
    work->request = MPI_REQUEST_NULL;
    work->what = what;
    return work;
}

void *lend(size_t bytes) {
    if (lent == LOANS)
        fail("more than %d buffers in one step", LOANS);
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        fail("no memory for %zu bytes", bytes);
    return loans[lent++] = memory;
}

static void check(struct work *work, const MPI_Status *status) {
    if (work->finish)
        work->finish(work, status);
    else if (work->bytes && memcmp(work->got, work->want, work->bytes)) {
        size_t at = 0;
        while (work->got[at] == work->want[at])
            at++;
        fail("%s: byte %zu of %zu is %d, not %d", work->what, at, work->bytes, work->got[at], work->want[at]);
    }
}

void finish_works(struct dice *own) {
    MPI_Request *requests = lend(sizeof(MPI_Request) * (size_t)(begun + 1));
    MPI_Status *statuses = lend(sizeof(MPI_Status) * (size_t)(begun + 1));
    int *indices = lend(sizeof(int) * (size_t)(begun + 1));
    MPI_Status *some = lend(sizeof(MPI_Status) * (size_t)(begun + 1));
    for (int i = 0; i < begun; i++)
        requests[i] = works[i].request;
    int how = below(own, 6), done = 0;
    /* Persistent requests stay, inactive, and are freed below. */
    switch (how) {
    case 0:
        MPI_Waitall(begun, requests, statuses);
        break;
    case 1:
        while (!done)
            MPI_Testall(begun, requests, &done, statuses);
        break;
    case 2:
        for (;;) {
            int index;
            MPI_Status status;
            MPI_Waitany(begun, requests, &index, &status);
            if (index == MPI_UNDEFINED)
                break;
            statuses[index] = status;
        }
        break;
    case 3:
    case 4:
        for (;;) {
            int count;
            (how == 3 ? MPI_Waitsome : MPI_Testsome)(begun, requests, &count, indices, some);
            if (count == MPI_UNDEFINED)
                break;
            for (int i = 0; i < count; i++)
                statuses[indices[i]] = some[i];
        }
        break;
    default:
        for (int i = begun - 1; i >= 0; i--) {
            if (below(own, 2))
                MPI_Wait(&requests[i], &statuses[i]);
            else
                for (done = 0; !done;)
                    MPI_Test(&requests[i], &done, &statuses[i]);
        }
    }
    for (int i = 0; i < begun; i++) {
        check(&works[i], &statuses[i]);
        if (requests[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&requests[i]);
    }
    begun = 0;
    while (lent > 0)
        free(loans[--lent]);
}
