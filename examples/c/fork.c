/* A process of a job forks, calls system() and uses threads while messages are under way. Its children are no members of the job:
 * every call says so at once. Two processes play; alone, a process plays with itself.
 *   cc fork.c -lpulc -lpthread -o fork && pulc run -n 2 ./fork */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <pthread.h>
#include <pulc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 30, WORDS = 64 };

static pulc_port *port, *inbox;
static pulc_address *partner, *to_inbox;
static volatile int done;

static void check(int code, const char *doing)
{
    if (code != PULC_OK) {
        fprintf(stderr, "fork: %s: %s (%s)\n", doing, pulc_strerror(code), pulc_last_error());
        exit(1);
    }
}

/* Takes one message of the partner's if there is one; they are numbered. Whether it was the last, which is empty. */
static int take(int64_t timeout_us)
{
    static uint64_t expected;
    uint64_t words[WORDS];
    pulc_envelope envelope;
    int code = pulc_recv(port, PULC_ANY_SOURCE, NULL, words, sizeof words, timeout_us, &envelope);

    if (timeout_us == 0 && code == PULC_ERR_TIMEOUT)
        return 0;
    check(code, "receive");
    if (envelope.len > 0 && (words[0] != expected++ || words[WORDS - 1] != words[0])) {
        fprintf(stderr, "fork: a message was lost or changed\n");
        exit(1);
    }
    return envelope.len == 0;
}

/* Sends numbers to the partner until told to stop, then an empty message, and takes what comes from there. */
static void *exchange(void *unused)
{
    uint64_t words[WORDS];
    int is_over = 0;

    (void)unused;
    for (uint64_t sent = 0; !done; sent++) {
        for (int i = 0; i < WORDS; i++)
            words[i] = sent;
        check(pulc_send(port, partner, 1, words, sizeof words, PULC_FOREVER), "send");
        is_over |= take(0);
    }
    check(pulc_send(port, partner, 1, NULL, 0, PULC_FOREVER), "send");
    while (!is_over)
        is_over = take(PULC_FOREVER);
    return NULL;
}

/* In a child: an error, and neither a hang nor a message. */
static int is_refused(void)
{
    char word[8];

    return pulc_attach() == PULC_ERR_FORKED && pulc_send(inbox, to_inbox, 1, "x", 1, PULC_FOREVER) == PULC_ERR_FORKED &&
           pulc_recv(inbox, PULC_ANY_SOURCE, NULL, word, sizeof word, PULC_FOREVER, NULL) == PULC_ERR_FORKED;
}

int main(void)
{
    uint32_t rank, size;
    pthread_t thread;
    char word[8];

    alarm(120);
    check(pulc_attach(), "attach");
    check(pulc_rank(&rank), "rank");
    check(pulc_size(&size), "size");
    if (size > 2 && rank >= size - size % 2) {
        printf("rank %" PRIu32 " has no partner\n", rank);
        return 0;
    }
    check(pulc_port_open("fork", PULC_ORDERED, &port), "open");
    check(pulc_port_open("inbox", PULC_ORDERED, &inbox), "open");
    check(pulc_address_new(size == 1 ? 0 : rank ^ 1, "fork", &partner), "address");
    check(pulc_address_new(rank, "inbox", &to_inbox), "address");
    if (pthread_create(&thread, NULL, exchange, NULL) != 0) {
        fprintf(stderr, "fork: no thread\n");
        return 1;
    }

    for (int i = 0; i < CHILDREN; i++) {
        int status;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            if (!is_refused())
                _exit(1);
            /* Closing is harmless, and so is everything that runs at exit. */
            check(pulc_port_close(inbox), "close in the child");
            exit(7);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7) {
            fprintf(stderr, "fork: child %d went wrong\n", i);
            return 1;
        }
        if (i % 10 == 0 && system("exit 3") != 3 << 8) {
            fprintf(stderr, "fork: system() went wrong\n");
            return 1;
        }
    }

    done = 1;
    pthread_join(thread, NULL);
    check(pulc_send(inbox, to_inbox, 1, "alive", 6, PULC_FOREVER), "send");
    check(pulc_recv(inbox, PULC_ANY_SOURCE, NULL, word, sizeof word, PULC_FOREVER, NULL), "receive");
    printf("rank %" PRIu32 ": %d children came and went, and the channels are %s\n", rank, CHILDREN, word);
    check(pulc_port_close(inbox), "close");
    check(pulc_port_close(port), "close");
    return 0;
}
