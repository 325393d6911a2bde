/* Two processes throw an 8-byte message to and fro; alone, a process plays with itself.
 *   cc pingpong.c -lpulc -o pingpong && pulc run -n 2 ./pingpong */
#define _POSIX_C_SOURCE 199309L
#include <inttypes.h>
#include <pulc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void check(int code, const char *doing)
{
    if (code != PULC_OK) {
        fprintf(stderr, "pingpong: %s: %s (%s)\n", doing, pulc_strerror(code), pulc_last_error());
        exit(1);
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(void)
{
    const int rounds = 20000;
    uint32_t rank, size, node, partner;
    char name[256];
    pulc_port *port;
    pulc_address *to;

    check(pulc_attach(), "attach");
    check(pulc_rank(&rank), "rank");
    check(pulc_size(&size), "size");
    check(pulc_node(&node), "node");
    check(pulc_node_name(node, name, sizeof name), "node name");
    if (size > 2 && rank >= size - size % 2) {
        printf("rank %" PRIu32 " has no partner\n", rank);
        return 0;
    }
    partner = size == 1 ? 0 : rank ^ 1;
    check(pulc_port_open("pingpong", PULC_ORDERED, &port), "open");
    check(pulc_address_new(partner, "pingpong", &to), "address");

    uint64_t ball = 0, tag = 7;
    pulc_envelope envelope;
    int serve = rank % 2 == 0;
    double begin = 0;
    for (int round = 0; round <= rounds; round++) {
        if (round == 1)
            begin = seconds(); /* the first round made the channel */
        if (serve) {
            check(pulc_send(port, to, tag, &ball, sizeof ball, PULC_FOREVER), "send");
            check(pulc_recv(port, partner, &tag, &ball, sizeof ball, PULC_FOREVER, &envelope), "receive");
        } else {
            check(pulc_recv(port, PULC_ANY_SOURCE, NULL, &ball, sizeof ball, PULC_FOREVER, &envelope), "receive");
            ball++;
            check(pulc_send(port, to, tag, &ball, sizeof ball, PULC_FOREVER), "send");
        }
        if (envelope.src != partner || envelope.tag != tag || envelope.len != sizeof ball) {
            fprintf(stderr, "pingpong: rank %" PRIu32 " got %" PRIu64 " bytes, tag %" PRIu64 ", from %" PRIu32 "\n", rank,
                    envelope.len, envelope.tag, envelope.src);
            return 1;
        }
    }
    if (size > 1 && serve && ball != (uint64_t)rounds + 1) {
        fprintf(stderr, "pingpong: the ball says %" PRIu64 "\n", ball);
        return 1;
    }
    if (serve)
        printf("ranks %" PRIu32 " and %" PRIu32 " on %s: %.3f us one way\n", rank, partner, name,
               (seconds() - begin) * 1e6 / rounds / 2);
    check(pulc_address_free(to), "free");
    check(pulc_port_close(port), "close");
    return 0;
}
