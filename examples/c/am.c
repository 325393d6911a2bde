/* Active messages: every process asks the next one to add two numbers, puts a block into its memory, and offers it a text; alone,
 * a process asks itself.
 *   cc am.c -lpulc -o am && pulc run -n 4 ./am */
#include <inttypes.h>
#include <pulc_am.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ADD = 1, SUM = 2, PUT = 3, OFFER = 4, GONE = 5, LEAVE = 6 };
enum { SEGMENT = 1 << 20 };

/* What the handlers of this process have seen. */
struct seen {
    uint64_t sum;
    int put, fetched, back, left;
    char text[64];
};

static void check(int code, const char *doing)
{
    if (code != PULC_OK) {
        fprintf(stderr, "am: %s: %s (%s)\n", doing, pulc_strerror(code), pulc_last_error());
        exit(1);
    }
}

static void expect(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "am: not true: %s\n", what);
        exit(1);
    }
}

static void add(const pulc_am_call *call, void *context)
{
    uint64_t sum = call->args[0] + call->args[1];
    (void)context;
    check(pulc_am_reply(call->token, SUM, &sum, 1), "reply");
    expect(pulc_am_reply(call->token, SUM, &sum, 1) == PULC_ERR_ARGUMENT, "a second reply is refused");
    expect(pulc_am_poll(NULL, NULL) == PULC_ERR_ARGUMENT, "a null bundle is refused");
}

static void sum(const pulc_am_call *call, void *context)
{
    ((struct seen *)context)->sum = call->args[0];
    expect(call->token == NULL, "a reply cannot be replied to");
}

static void put(const pulc_am_call *call, void *context)
{
    const unsigned char *bytes = call->data;
    expect(call->offset == 16, "the block landed where it was sent");
    for (uint64_t at = 0; at < call->bytes; at++)
        expect(bytes[at] == (unsigned char)(at * 7), "the block landed whole");
    ((struct seen *)context)->put++;
}

static void fetched(const pulc_am_call *call, void *context)
{
    expect(call->data == ((struct seen *)context)->text && call->bytes == 6, "the text is where it was wanted");
    ((struct seen *)context)->fetched++;
}

static void offer(const pulc_am_call *call, void *context)
{
    char name[64];
    check(pulc_am_source_name(call->token, name, sizeof name), "name");
    expect(strcmp(name, "example") == 0, "requests come from an endpoint with a name");
    check(pulc_am_fetch(call->token, ((struct seen *)context)->text, 64, fetched, context), "fetch");
}

static void leave(const pulc_am_call *call, void *context)
{
    (void)call;
    ((struct seen *)context)->left++;
}

static void back(const pulc_am_back *back, void *context)
{
    expect(back->status == PULC_AM_BAD_HANDLER && back->handler == GONE, "the status tells why");
    ((struct seen *)context)->back++;
}

int main(void)
{
    static struct seen seen;
    static unsigned char segment[SEGMENT], block[SEGMENT - 16];
    uint32_t rank, size, left, agreed;
    pulc_am_bundle *bundle;
    pulc_am_endpoint *endpoint;
    pulc_am_peer *next;
    pulc_am_event *put_done, *fetch_done;
    pulc_am_prepared *prepared;
    void *room;
    int outcome;

    check(pulc_attach(), "attach");
    check(pulc_rank(&rank), "rank");
    check(pulc_size(&size), "size");
    check(pulc_am_bundle_new(PULC_AM_SEQ, &bundle), "bundle");
    check(pulc_am_endpoint_open(bundle, "example", 42, &endpoint), "endpoint");
    check(pulc_am_set_segment(endpoint, segment, sizeof segment), "segment");
    check(pulc_am_on(endpoint, ADD, PULC_AM_SHORT | PULC_AM_MEDIUM, add, NULL), "on");
    check(pulc_am_on(endpoint, SUM, PULC_AM_REPLY, sum, &seen), "on");
    check(pulc_am_on(endpoint, PUT, PULC_AM_LONG, put, &seen), "on");
    check(pulc_am_on(endpoint, OFFER, PULC_AM_FETCH, offer, &seen), "on");
    check(pulc_am_on(endpoint, LEAVE, PULC_AM_SHORT, leave, &seen), "on");
    check(pulc_am_on_error(endpoint, back, &seen), "on error");
    expect(pulc_am_map(endpoint, bundle, (rank + 1) % size, "example", 43, 4, PULC_FOREVER, &next) == PULC_ERR_TAG,
           "a wrong tag is refused");
    check(pulc_am_map(endpoint, bundle, (rank + 1) % size, "example", 42, 4, PULC_FOREVER, &next), "map");

    const uint64_t numbers[2] = {rank, 100};
    check(pulc_am_request(next, bundle, ADD, numbers, 2, NULL), "request");
    while (seen.sum == 0)
        check(pulc_am_wait(bundle, PULC_FOREVER, NULL), "wait");
    expect(seen.sum == rank + 100, "the sum is right");

    seen.sum = 0;
    check(pulc_am_prepare(next, bundle, 100, &prepared, &room), "prepare");
    memset(room, 1, 100);
    check(pulc_am_commit(prepared, ADD, numbers, 2, 100), "commit");
    check(pulc_am_prepare(next, bundle, 100, &prepared, &room), "prepare");
    check(pulc_am_abandon(prepared), "abandon");
    while (seen.sum == 0)
        check(pulc_am_wait(bundle, PULC_FOREVER, NULL), "wait");

    for (size_t at = 0; at < sizeof block; at++)
        block[at] = (unsigned char)(at * 7);
    check(pulc_am_request_long(next, bundle, PUT, NULL, 0, 16, block, sizeof block, &put_done), "put");
    check(pulc_am_event_wait(bundle, put_done, PULC_FOREVER, &outcome), "wait for the put");
    expect(outcome == 1, "the handler of the put has returned");
    check(pulc_am_event_free(put_done), "free");
    check(pulc_am_post_fetch(next, bundle, OFFER, NULL, 0, "hello", 6, &fetch_done), "offer");
    check(pulc_am_event_wait(bundle, fetch_done, PULC_FOREVER, &outcome), "wait for the fetch");
    expect(outcome == 1, "the text has left");
    check(pulc_am_event_free(fetch_done), "free");
    check(pulc_am_request(next, bundle, GONE, NULL, 0, NULL), "request nobody handles");
    check(pulc_am_request(next, bundle, LEAVE, NULL, 0, NULL), "leave");
    while (seen.back == 0 || seen.put == 0 || seen.fetched == 0 || seen.left == 0)
        check(pulc_am_wait(bundle, PULC_FOREVER, NULL), "wait");
    expect(strcmp(seen.text, "hello") == 0, "the text has come");
    do {
        check(pulc_am_poll(bundle, NULL), "poll");
        check(pulc_am_credits(next, &left, &agreed), "credits");
    } while (left < agreed);

    pulc_am_counts counts;
    check(pulc_am_tally(bundle, &counts), "tally");
    expect(counts.strays == 0 && counts.requests >= 6 && counts.returned == 1, "the counts are right");
    printf("rank %" PRIu32 ": %" PRIu64 " requests, %" PRIu64 " handlers ran\n", rank, counts.requests, counts.handled);
    check(pulc_am_unmap(next), "unmap");
    check(pulc_am_endpoint_close(endpoint), "close");
    check(pulc_am_bundle_free(bundle), "free");
    return 0;
}
