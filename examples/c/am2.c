/* AM-2 names: a token goes round a ring of processes, then every process takes a block out of its neighbour's segment.
 *   cc am2.c -lpulc -o am2 && pulc run -n 4 ./am2 */
#include <am.h>
#include <inttypes.h>

enum { PASS = 1, TEXT = 2, ANSWER = 3, PUT = 4, GOT = 5, BYE = 6, NOBODY = 77 };
enum { ROUNDS = 100, BLOCK = 100000 };

static int passed, answered, put_done, got, errors, byes;
static unsigned char segment[4 * BLOCK];

static void expect(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "am2: not true: %s\n", what);
        exit(1);
    }
}

static void pass(void *token, int value)
{
    (void)token;
    passed = value;
}

static void text(void *token, void *data, size_t bytes, int a, int b, int c, int d)
{
    en_t source = {0, 0};
    ea_t here = NULL;
    expect(bytes == 6 && strcmp((char *)data, "hello") == 0 && a + b + c + d == 10, "the text came with its arguments");
    expect(AM_GetSourceEndpoint(token, &source) == AM_OK && source.number == 1, "the source has a name");
    expect(AM_GetDestEndpoint(token, &here) == AM_OK && here != NULL, "the destination is known");
    expect(AM_ReplyI2(token, ANSWER, data, bytes, -5, 5) == AM_OK, "reply");
}

static void answer(void *token, void *data, size_t bytes, int a, int b)
{
    (void)token;
    answered = bytes == 6 && strcmp((char *)data, "hello") == 0 && a == -5 && b == 5;
}

static void put(void *token, void *data, size_t bytes, int value)
{
    (void)token;
    expect((unsigned char *)data == segment + BLOCK && bytes == BLOCK, "the block landed where it was sent");
    for (size_t at = 0; at < bytes; at++)
        expect(((unsigned char *)data)[at] == (unsigned char)(at + (size_t)value), "the block landed whole");
    put_done++;
}

static void get_done(void *token, void *data, size_t bytes, int a, int b, int c)
{
    (void)token;
    expect((unsigned char *)data == segment + 2 * BLOCK && bytes == BLOCK && a == -1 && b == 2 && c == -3, "the block was got");
    got = 1;
}

static void bye(void *token)
{
    (void)token;
    byes++;
}

static void error(int status, op_t opcode, void *block)
{
    (void)opcode;
    (void)block;
    expect(status == EBADHANDLER || status == EBADTAG || status == EBADSEGOFF, "the status tells why");
    errors++;
}

int main(void)
{
    eb_t bundle = NULL;
    ea_t endpoint = NULL;
    en_t name = {0, 0};
    uint32_t rank = 0, size = 0;
    int wrong = 0;
    static unsigned char block[BLOCK];

    expect(AM_Init() == AM_OK, "init");
    pulc_rank(&rank);
    pulc_size(&size);
    expect(AM_AllocateBundle(AM_SEQ, &bundle) == AM_OK, "bundle");
    expect(AM_AllocateKnownEndpoint(bundle, &endpoint, 1, &name) == AM_OK && name.rank == rank, "endpoint");
    AM_SetExpectedResources(endpoint, (int)size, 4);
    AM_SetSeg(endpoint, segment, sizeof segment);
    AM_SetHandler(endpoint, 0, (am_function)error);
    AM_SetHandler(endpoint, PASS, (am_function)pass);
    AM_SetHandler(endpoint, TEXT, (am_function)text);
    AM_SetHandler(endpoint, ANSWER, (am_function)answer);
    AM_SetHandler(endpoint, PUT, (am_function)put);
    AM_SetHandler(endpoint, GOT, (am_function)get_done);
    AM_SetHandler(endpoint, BYE, (am_function)bye);
    for (size_t at = 0; at < BLOCK; at++) {
        block[at] = (unsigned char)(at + rank);
        segment[at] = (unsigned char)(rank + 1);
    }
    /* Whoever sends to an endpoint waits until it has its tag: it gets it last. */
    AM_SetTag(endpoint, 9);
    expect(AM_Map(endpoint, 0, AM_Name((rank + 1) % size, 1), 9) == AM_OK, "map");
    expect(AM_MapAny(endpoint, &wrong, AM_Name((rank + 1) % size, 1), 8) == AM_OK && wrong == 1, "map with another tag");

    for (int round = 1; round <= ROUNDS; round++) {
        if (rank == 0)
            expect(AM_Request1(endpoint, 0, PASS, round) == AM_OK, "request");
        while (passed < round)
            expect(AM_Wait(bundle) == AM_OK, "wait");
        if (rank != 0)
            expect(AM_Request1(endpoint, 0, PASS, round) == AM_OK, "request");
    }
    expect(AM_RequestI4(endpoint, 0, TEXT, "hello", 6, 1, 2, 3, 4) == AM_OK, "medium request");
    expect(AM_RequestXfer1(endpoint, 0, BLOCK, PUT, block, BLOCK, (int)rank) == AM_OK, "long request");
    expect(AM_GetXfer3(endpoint, 0, 0, GOT, 2 * BLOCK, BLOCK, -1, 2, -3) == AM_OK, "get");
    expect(AM_Request0(endpoint, 0, NOBODY) == AM_OK, "request that nobody handles");
    expect(AM_Request0(endpoint, wrong, PASS) == AM_OK && errors >= 1, "request with another tag");
    expect(AM_RequestXfer0(endpoint, 0, 5 * BLOCK, PUT, block, 1) == AM_OK, "request beyond the segment");
    while (!answered || !put_done || !got || errors < 3)
        expect(AM_Wait(bundle) == AM_OK, "wait");
    for (size_t at = 0; at < BLOCK; at++)
        expect(segment[2 * BLOCK + at] == (unsigned char)((rank + 1) % size + 1), "the neighbour's bytes are here");
    expect(AM_Request0(endpoint, 0, BYE) == AM_OK, "bye");
    while (byes == 0)
        expect(AM_Wait(bundle) == AM_OK, "wait");
    uint32_t left = 0, agreed = 1;
    do {
        AM_Poll(bundle);
        pulc_am_credits(endpoint->table[0].peer, &left, &agreed);
    } while (left < agreed);
    printf("rank %" PRIu32 ": the token came round %d times\n", rank, passed);
    expect(AM_FreeEndpoint(endpoint) == AM_OK && AM_FreeBundle(bundle) == AM_OK, "free");
    expect(AM_Terminate() == AM_OK, "terminate");
    return 0;
}
