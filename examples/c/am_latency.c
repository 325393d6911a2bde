/* How long a request and its reply take between two processes, and that neither costs an allocation on one node; alone, a
 * process asks itself and only looks at the time.
 *   cc am_latency.c -lpulc -o am_latency && pulc run -n 2 ./am_latency */
#define _POSIX_C_SOURCE 199309L
#include <inttypes.h>
#include <pulc_am.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PING = 1, PONG = 2, ROUNDS = 20000 };

/* Every allocation of this process, the library's too. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
static volatile uint64_t allocations;

void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes)
{
    allocations++;
    return __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes)
{
    allocations++;
    return __libc_realloc(old, bytes);
}
int posix_memalign(void **place, size_t alignment, size_t bytes)
{
    allocations++;
    *place = __libc_memalign(alignment, bytes);
    return *place ? 0 : 12;
}

static uint64_t served, answered;

static void check(int code, const char *doing)
{
    if (code != PULC_OK) {
        fprintf(stderr, "am_latency: %s: %s (%s)\n", doing, pulc_strerror(code), pulc_last_error());
        exit(1);
    }
}

static void ping(const pulc_am_call *call, void *context)
{
    (void)context;
    check(pulc_am_reply(call->token, PONG, call->args, call->count), "reply");
    served++;
}

static void pong(const pulc_am_call *call, void *context)
{
    (void)context;
    answered = call->args[0];
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(void)
{
    uint32_t rank, size, left, agreed, here, there = 0;
    pulc_am_bundle *bundle;
    pulc_am_endpoint *endpoint;
    pulc_am_peer *partner;

    check(pulc_attach(), "attach");
    check(pulc_rank(&rank), "rank");
    check(pulc_size(&size), "size");
    if (rank > 1)
        return 0;
    check(pulc_node(&here), "node");
    if (size > 1)
        check(pulc_node_of(1 - rank, &there), "node of the partner");
    int counts = size > 1 && here == there;
    check(pulc_am_bundle_new(PULC_AM_SEQ, &bundle), "bundle");
    check(pulc_am_endpoint_open(bundle, "latency", 1, &endpoint), "endpoint");
    check(pulc_am_on(endpoint, PING, PULC_AM_SHORT, ping, NULL), "on");
    check(pulc_am_on(endpoint, PONG, PULC_AM_REPLY, pong, NULL), "on");
    check(pulc_am_map(endpoint, bundle, size == 1 ? 0 : 1 - rank, "latency", 1, 8, PULC_FOREVER, &partner), "map");
    if (rank == 0) {
        double begin = 0;
        uint64_t before = 0;
        for (uint64_t round = 1; round <= 2 * ROUNDS; round++) {
            if (round == ROUNDS + 1) {
                begin = seconds();
                before = allocations; /* the first rounds made everything */
            }
            check(pulc_am_request(partner, bundle, PING, &round, 1, NULL), "request");
            while (answered < round)
                check(pulc_am_wait(bundle, PULC_FOREVER, NULL), "wait");
        }
        double took = seconds() - begin;
        uint64_t made = allocations - before;
        printf("one way %.0f ns, %" PRIu64 " allocations in %d round trips\n", took * 1e9 / ROUNDS / 2, made, ROUNDS);
        if (counts && made > 0)
            return 1;
    } else {
        uint64_t before = 0;
        while (served < 2 * ROUNDS) {
            if (before == 0 && served >= ROUNDS)
                before = allocations;
            check(pulc_am_wait(bundle, PULC_FOREVER, NULL), "wait");
        }
        if (counts && allocations != before) {
            fprintf(stderr, "am_latency: %" PRIu64 " allocations while answering\n", allocations - before);
            return 1;
        }
    }
    do {
        check(pulc_am_poll(bundle, NULL), "poll");
        check(pulc_am_credits(partner, &left, &agreed), "credits");
    } while (left < agreed);
    return 0;
}
