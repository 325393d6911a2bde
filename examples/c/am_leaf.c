/* Leaf handlers: rank 0 gives out numbers, each once, from inside of its polls; alone, a process asks itself.
 *   cc am_leaf.c -lpulc -o am_leaf && pulc run -n 4 ./am_leaf */
#include <inttypes.h>
#include <pulc_am.h>
#include <stdio.h>
#include <stdlib.h>

enum { DRAW = 1, DRAWN = 2, BYE = 3, USUAL = 4, CHEAT = 5, COUNT = 1000 };

static uint64_t next, drawn, last, byes, back, refused;
static pulc_am_bundle *bundle;

static void check(int code, const char *doing)
{
    if (code != PULC_OK) {
        fprintf(stderr, "am_leaf: %s: %s (%s)\n", doing, pulc_strerror(code), pulc_last_error());
        exit(1);
    }
}

static void expect(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "am_leaf: not true: %s\n", what);
        exit(1);
    }
}

/* A leaf handler calls nothing but pulc_am_reply. */
static void draw(const pulc_am_call *call, void *context)
{
    uint64_t number = next++;
    (void)context;
    expect(pulc_am_reply_medium(call->token, DRAWN, NULL, 0, "x", 1) == PULC_ERR_ARGUMENT, "it replies by arguments only");
    check(pulc_am_reply(call->token, DRAWN, &number, 1), "reply");
    expect(pulc_am_reply(call->token, DRAWN, &number, 1) == PULC_ERR_ARGUMENT, "it replies once");
}

static void note(const pulc_am_call *call, void *context)
{
    (void)context;
    expect(call->token == NULL && call->kind == PULC_AM_REPLY && call->count == 1, "a reply cannot be answered");
    expect(drawn == 0 || call->args[0] > last, "who asks once gets higher numbers only");
    last = call->args[0];
    drawn++;
}

static void bye(const pulc_am_call *call, void *context)
{
    (void)call;
    (void)context;
    byes++;
}

/* One that breaks its promise is told so, here and on standard error. */
static void cheat(const pulc_am_call *call, void *context)
{
    (void)call;
    (void)context;
    refused += pulc_am_poll(bundle, NULL) == PULC_ERR_IN_HANDLER;
}

static void came_back(const pulc_am_back *what, void *context)
{
    (void)context;
    expect(what->status == PULC_AM_BAD_HANDLER && what->handler == DRAW, "no leaf handler takes a payload");
    back++;
}

int main(void)
{
    uint32_t rank, size, left, agreed;
    pulc_am_endpoint *endpoint;
    pulc_am_peer *first, *self;

    check(pulc_attach(), "attach");
    check(pulc_rank(&rank), "rank");
    check(pulc_size(&size), "size");
    check(pulc_am_bundle_new(PULC_AM_SEQ, &bundle), "bundle");
    check(pulc_am_endpoint_open(bundle, "numbers", 1, &endpoint), "endpoint");
    check(pulc_am_on_leaf(endpoint, DRAW, PULC_AM_SHORT, draw, NULL), "on leaf");
    check(pulc_am_on_leaf(endpoint, DRAWN, PULC_AM_REPLY, note, NULL), "on leaf");
    check(pulc_am_on_leaf(endpoint, BYE, PULC_AM_SHORT, bye, NULL), "on leaf");
    check(pulc_am_on_leaf(endpoint, CHEAT, PULC_AM_SHORT, cheat, NULL), "on leaf");
    check(pulc_am_on(endpoint, USUAL, PULC_AM_SHORT, bye, NULL), "on");
    check(pulc_am_on_error(endpoint, came_back, NULL), "on error");
    expect(pulc_am_on_leaf(endpoint, 9, PULC_AM_MEDIUM, draw, NULL) == PULC_ERR_ARGUMENT, "payloads are not for leaves");
    expect(pulc_am_on_leaf(endpoint, USUAL, PULC_AM_SHORT, draw, NULL) == PULC_ERR_ARGUMENT, "a usual handler stays one");
    expect(pulc_am_on(endpoint, DRAW, PULC_AM_SHORT, draw, NULL) == PULC_ERR_ARGUMENT, "a leaf handler stays one");

    check(pulc_am_map(endpoint, bundle, 0, "numbers", 1, 1, PULC_FOREVER, &first), "map");
    for (int turn = 0; turn < COUNT; turn++)
        check(pulc_am_request(first, bundle, DRAW, NULL, 0, NULL), "request");
    while (drawn < COUNT)
        check(pulc_am_wait(bundle, PULC_FOREVER, NULL), "wait");
    check(pulc_am_map(endpoint, bundle, rank, "numbers", 1, 4, PULC_FOREVER, &self), "map");
    check(pulc_am_request_medium(self, bundle, DRAW, NULL, 0, "payload", 7, NULL), "request");
    check(pulc_am_request(self, bundle, CHEAT, NULL, 0, NULL), "request");
    while (back < 1 || refused < 1)
        check(pulc_am_wait(bundle, PULC_FOREVER, NULL), "wait");

    check(pulc_am_request(first, bundle, BYE, NULL, 0, NULL), "bye");
    while (rank == 0 && byes < size)
        check(pulc_am_wait(bundle, PULC_FOREVER, NULL), "wait");
    do {
        check(pulc_am_poll(bundle, NULL), "poll");
        check(pulc_am_credits(first, &left, &agreed), "credits");
    } while (left < agreed);
    if (rank == 0)
        expect(next == (uint64_t)size * COUNT, "each number was given out once");
    printf("rank %" PRIu32 ": %" PRIu64 " numbers, the last one %" PRIu64 "\n", rank, drawn, last);
    return 0;
}
