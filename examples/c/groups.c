/* One message to many ports, and a port that moves: every process sends to all, then a port goes round from process to process
 * while messages are sent to it. Alone, a process sends to itself, and the port has nowhere to go.
 *   cc groups.c -lpulc -o groups && pulc run -n 3 ./groups */
#include <inttypes.h>
#include <pulc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONG = 300000, THROWS = 50 };

static void check(int code, const char *doing)
{
    if (code != PULC_OK) {
        fprintf(stderr, "groups: %s: %s (%s)\n", doing, pulc_strerror(code), pulc_last_error());
        exit(1);
    }
}

static void want(int is, const char *what)
{
    if (!is) {
        fprintf(stderr, "groups: %s\n", what);
        exit(1);
    }
}

static void to_all(pulc_port *port, uint32_t size)
{
    static unsigned char block[LONG], landing[LONG];
    pulc_address **addresses = calloc(size + 1, sizeof *addresses);
    int *statuses = calloc(size + 1, sizeof *statuses);
    pulc_members *members;

    for (uint32_t rank = 0; rank < size; rank++)
        check(pulc_address_new(rank, "groups", &addresses[rank]), "address");
    check(pulc_members_new((const pulc_address *const *)addresses, size, &members), "members");
    for (size_t bytes = 8; bytes <= LONG; bytes = bytes == 8 ? LONG : LONG + 1) {
        memset(block, (int)bytes, bytes);
        check(pulc_send_many(port, members, bytes, block, bytes, PULC_FOREVER, statuses), "send to all");
        for (uint32_t rank = 0; rank < size; rank++) {
            uint64_t tag = bytes;
            pulc_envelope envelope;
            want(statuses[rank] == PULC_OK, "a member failed");
            check(pulc_recv(port, rank, &tag, landing, sizeof landing, PULC_FOREVER, &envelope), "receive");
            want(envelope.len == bytes && landing[bytes - 1] == block[bytes - 1], "a message arrived wrong");
        }
    }
    check(pulc_members_free(members), "free");

    /* A member that cannot be there. */
    check(pulc_address_new(size + 7, "groups", &addresses[size]), "address");
    check(pulc_members_new((const pulc_address *const *)addresses, size + 1, &members), "members");
    want(pulc_send_many(port, members, 1, block, 8, PULC_FOREVER, statuses) == PULC_ERR_MEMBERS, "nobody is missed");
    want(statuses[0] == PULC_OK && statuses[size] == PULC_ERR_RANK, "the wrong one is missed");
    for (uint32_t rank = 0; rank < size; rank++) {
        uint64_t tag = 1;
        check(pulc_recv(port, rank, &tag, landing, sizeof landing, PULC_FOREVER, NULL), "receive");
    }
    check(pulc_members_free(members), "free");
    want(pulc_members_new(NULL, 0, &members) == PULC_ERR_ARGUMENT, "nobody is somebody");
    for (uint32_t rank = 0; rank <= size; rank++)
        check(pulc_address_free(addresses[rank]), "free");
    free(addresses);
    free(statuses);
}

/* Everyone throws numbers at the port; each owner catches some and hands it on; the last one catches the rest. */
static void round_it_goes(pulc_port *port, uint32_t rank, uint32_t size)
{
    pulc_address *to_ball;
    pulc_port *ball = NULL;
    uint64_t caught = 0, number;

    check(pulc_address_new(0, "ball", &to_ball), "address");
    if (rank == 0)
        check(pulc_port_open("ball", PULC_ORDERED, &ball), "open");
    for (uint64_t i = 0; i < THROWS; i++)
        check(pulc_send(port, to_ball, rank, &i, sizeof i, PULC_FOREVER), "throw");
    if (rank > 0)
        check(pulc_port_adopt(rank - 1, "ball", PULC_FOREVER, &ball), "adopt");
    if (rank + 1 < size) {
        pulc_envelope envelope;
        for (; caught < THROWS / 2; caught++)
            check(pulc_recv(ball, PULC_ANY_SOURCE, NULL, &number, sizeof number, PULC_FOREVER, &envelope), "catch");
        want(pulc_port_transfer(ball, size + 7, PULC_FOREVER) == PULC_ERR_RANK, "it went nowhere");
        check(pulc_port_transfer(ball, rank + 1, PULC_FOREVER), "hand on");
    } else {
        while (caught < (uint64_t)THROWS * size - (uint64_t)(size - 1) * (THROWS / 2)) {
            check(pulc_recv(ball, PULC_ANY_SOURCE, NULL, &number, sizeof number, PULC_FOREVER, NULL), "catch");
            caught++;
        }
        want(pulc_recv(ball, PULC_ANY_SOURCE, NULL, &number, sizeof number, 0, NULL) == PULC_ERR_TIMEOUT, "too many");
        check(pulc_port_close(ball), "close");
    }
    check(pulc_address_free(to_ball), "free");
    printf("rank %" PRIu32 ": caught %" PRIu64 "\n", rank, caught);
}

int main(void)
{
    uint32_t rank, size;
    pulc_port *port;

    check(pulc_attach(), "attach");
    check(pulc_rank(&rank), "rank");
    check(pulc_size(&size), "size");
    check(pulc_port_open("groups", PULC_ORDERED, &port), "open");
    to_all(port, size);
    round_it_goes(port, rank, size);
    /* Nobody leaves before all have thrown: the first owner tells where the port went. */
    to_all(port, size);
    check(pulc_port_close(port), "close");
    return 0;
}
