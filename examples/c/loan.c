/* A block of memory goes round all processes; on one node nobody copies it but to look. Alone, a process lends to itself.
 *   cc loan.c -lpulc -o loan && pulc run -n 4 ./loan */
#include <inttypes.h>
#include <pulc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 20, ROUNDS = 10 };

static void check(int code, const char *doing)
{
    if (code != PULC_OK) {
        fprintf(stderr, "loan: %s: %s (%s)\n", doing, pulc_strerror(code), pulc_last_error());
        exit(1);
    }
}

static void lend(pulc_channel *to, int round)
{
    pulc_loan *loan;
    void *data;
    check(pulc_raw_loan(to, BYTES, &loan, &data), "loan");
    memset(data, round, BYTES);
    check(pulc_raw_send_loan(to, loan, PULC_FOREVER), "send");
}

static void look(pulc_channel *from, int round)
{
    pulc_view *view;
    size_t len;
    unsigned char last = 0;
    check(pulc_raw_recv_view(from, PULC_FOREVER, &view, &len), "receive");
    check(pulc_view_copy(view, len - 1, &last, 1), "look");
    const volatile unsigned char *bytes = pulc_view_data(view);
    if (len != BYTES || last != round || bytes[0] != round) {
        fprintf(stderr, "loan: round %d arrived wrong\n", round);
        exit(1);
    }
    check(pulc_view_drop(view), "drop");
}

int main(void)
{
    uint32_t rank, size;
    pulc_channel *to, *from;

    check(pulc_attach(), "attach");
    check(pulc_rank(&rank), "rank");
    check(pulc_size(&size), "size");
    /* With one or two processes both neighbours are the same one. */
    check(pulc_raw_open((rank + 1) % size, 1, &to), "open");
    from = to;
    if (size > 2)
        check(pulc_raw_open((rank + size - 1) % size, 1, &from), "open");

    /* Between nodes a loan is an ordinary message, and a long one waits for its receiver: so one of the ring begins. */
    for (int round = 0; round < ROUNDS; round++) {
        if (rank == 0)
            lend(to, round);
        look(from, round);
        if (rank != 0)
            lend(to, round);
    }

    /* Memory that long messages are sent from without a copy, whatever sends them. */
    void *memory;
    check(pulc_alloc(BYTES, &memory), "alloc");
    check(pulc_free(memory), "free");
    if (pulc_free(memory) != PULC_ERR_ARGUMENT) {
        fprintf(stderr, "loan: memory was given back twice\n");
        return 1;
    }
    printf("rank %" PRIu32 ": %d loans\n", rank, ROUNDS);
    return 0;
}
