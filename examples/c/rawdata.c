/* Two processes pour blocks into each other's posted buffers; alone, a process pours into its own.
 *   cc rawdata.c -lpulc -o rawdata && pulc run -n 2 ./rawdata */
#include <inttypes.h>
#include <pulc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 8, BYTES = 48 * 1024, ROUNDS = 20, SHORT = 1000 };

static unsigned char landing[BLOCKS][BYTES], block[BYTES];

static void check(int code, const char *doing)
{
    if (code != PULC_OK) {
        fprintf(stderr, "rawdata: %s: %s (%s)\n", doing, pulc_strerror(code), pulc_last_error());
        exit(1);
    }
}

int main(void)
{
    uint32_t rank, size;
    pulc_channel *channel;

    check(pulc_attach(), "attach");
    check(pulc_rank(&rank), "rank");
    check(pulc_size(&size), "size");
    if (size > 2 && rank >= size - size % 2) {
        printf("rank %" PRIu32 " has no partner\n", rank);
        return 0;
    }
    check(pulc_raw_open(size == 1 ? 0 : rank ^ 1, 1, &channel), "open");

    /* Every buffer that comes back is checked and posted again. */
    for (uint64_t i = 0; i < BLOCKS; i++)
        check(pulc_raw_post(channel, landing[i], BYTES, i), "post");
    int poured = 0, landed_blocks = 0;
    while (landed_blocks < ROUNDS * BLOCKS) {
        if (poured < ROUNDS * BLOCKS && poured < landed_blocks + BLOCKS) {
            memset(block, poured, BYTES);
            check(pulc_raw_send(channel, block, BYTES, PULC_FOREVER), "send");
            poured++;
            continue;
        }
        size_t index;
        pulc_landed landed;
        check(pulc_raw_select(&channel, 1, PULC_FOREVER, &index), "select");
        check(pulc_raw_landed(channel, PULC_FOREVER, &landed), "landed");
        check(landed.status, "receive");
        unsigned char *bytes = landed.buffer;
        if (landed.len != BYTES || bytes[0] != (unsigned char)landed_blocks || bytes[BYTES - 1] != bytes[0]) {
            fprintf(stderr, "rawdata: block %d arrived wrong\n", landed_blocks);
            return 1;
        }
        landed_blocks++;
        check(pulc_raw_post(channel, bytes, BYTES, landed.token), "post again");
    }
    check(pulc_raw_close(channel), "close");

    /* A second channel, received from directly. */
    check(pulc_raw_open(size == 1 ? 0 : rank ^ 1, 2, &channel), "open");
    char word[16];
    size_t len;
    check(pulc_raw_send(channel, "well done", 10, PULC_FOREVER), "send");
    if (pulc_raw_recv(channel, word, 4, PULC_FOREVER, &len) != PULC_ERR_TRUNCATE || len != 10) {
        fprintf(stderr, "rawdata: a short buffer was not noticed\n");
        return 1;
    }
    check(pulc_raw_recv(channel, word, sizeof word, PULC_FOREVER, &len), "receive");

    /* Many short messages with few calls. */
    static uint64_t numbers[SHORT], arrived[SHORT];
    static pulc_bytes messages[SHORT];
    for (size_t i = 0; i < SHORT; i++) {
        numbers[i] = i * i;
        messages[i] = (pulc_bytes){&numbers[i], sizeof numbers[i]};
    }
    for (size_t left = 0, sent; left < SHORT; left += sent)
        check(pulc_raw_send_batch(channel, messages + left, SHORT - left, PULC_FOREVER, &sent), "send a batch");
    for (size_t there = 0, received; there < SHORT; there += received) {
        size_t lens[64];
        check(pulc_raw_recv_batch(channel, arrived + there, sizeof arrived - there * sizeof arrived[0], lens, 64, PULC_FOREVER, &received),
              "receive a batch");
        for (size_t i = 0; i < received; i++)
            if (lens[i] != sizeof arrived[0]) {
                fprintf(stderr, "rawdata: a message of the batch has %zu bytes\n", lens[i]);
                return 1;
            }
    }
    if (memcmp(numbers, arrived, sizeof numbers) != 0) {
        fprintf(stderr, "rawdata: the batches arrived wrong\n");
        return 1;
    }
    printf("rank %" PRIu32 ": %d blocks of %d bytes, %d short messages, %s\n", rank, landed_blocks, BYTES, SHORT, word);
    check(pulc_raw_close(channel), "close");
    return 0;
}
