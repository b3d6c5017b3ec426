/* A client that keeps a number of requests in flight, and a server that answers from memory.

   Both know only the lengths of requests and replies, which are always the same, and share no code
   with the project.  run.py prepares the bytes and the connection.

     peer drive FD REQUESTS REQUEST_BYTES REPLY_BYTES DEPTH SECONDS
     peer floor FD REPLIES REQUEST_BYTES REPLY_BYTES NUMBER_AT

   `drive` prints the number of replies and the seconds they took.  REQUESTS and REPLIES name files;
   the requests are sent in turns.  A request has the number of its reply at NUMBER_AT, in two bytes,
   the higher first.  FD is the number of an open socket: a connection for `drive`, a listener for
   `floor`. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20 };

static char buffer[BUFFER_BYTES];

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static char *read_file(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        fail(path);
    *length = ftell(file);
    rewind(file);
    char *bytes = malloc(*length);
    if (!bytes || fread(bytes, 1, *length, file) != *length)
        fail(path);
    fclose(file);
    return bytes;
}

static void write_all(int fd, const char *bytes, size_t length)
{
    while (length) {
        ssize_t written = write(fd, bytes, length);
        if (written <= 0)
            fail("write");
        bytes += written;
        length -= written;
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* Ends unless each reply in these bytes begins with the length of a reply.  The first byte has this
   offset within a reply. */
static void check(const char *bytes, size_t length, size_t offset, size_t reply_bytes)
{
    for (size_t at = offset ? reply_bytes - offset : 0; at + 4 <= length; at += reply_bytes) {
        uint32_t body = reply_bytes - 4;
        unsigned char head[4] = {body >> 24, body >> 16, body >> 8, body};
        if (memcmp(bytes + at, head, 4)) {
            fprintf(stderr, "a reply has another length\n");
            exit(1);
        }
    }
}

static void drive(int fd, const char *path, size_t request_bytes, size_t reply_bytes, size_t depth,
                  double seconds)
{
    size_t length;
    const char *requests = read_file(path, &length);
    size_t kinds = length / request_bytes, next = 0, sent = 0, received = 0, wanted = depth;
    double start = now(), end = start + seconds;
    int is_over = 0;
    while (!is_over || received < sent * reply_bytes) {
        while (wanted && !is_over) {
            size_t count = wanted < kinds - next ? wanted : kinds - next;
            write_all(fd, requests + next * request_bytes, count * request_bytes);
            next = (next + count) % kinds;
            sent += count;
            wanted -= count;
        }
        ssize_t read_bytes = read(fd, buffer, sizeof buffer);
        if (read_bytes <= 0)
            fail("read");
        check(buffer, read_bytes, received % reply_bytes, reply_bytes);
        wanted += (received + read_bytes) / reply_bytes - received / reply_bytes;
        received += read_bytes;
        is_over = now() >= end;
    }
    printf("%zu %.6f\n", sent, now() - start);
}

static void serve(int listener, const char *path, size_t request_bytes, size_t reply_bytes,
                  size_t number_at)
{
    size_t length, held = 0;
    const char *replies = read_file(path, &length);
    char *batch = malloc(BUFFER_BYTES / request_bytes * reply_bytes);
    int fd = accept(listener, NULL, NULL);
    if (!batch || fd < 0)
        fail("accept");
    for (;;) {
        ssize_t read_bytes = read(fd, buffer + held, sizeof buffer - held);
        if (read_bytes == 0)
            return;
        if (read_bytes < 0)
            fail("read");
        held += read_bytes;
        size_t count = held / request_bytes;
        for (size_t n = 0; n < count; n++) {
            const unsigned char *number = (unsigned char *)buffer + n * request_bytes + number_at;
            size_t reply = (size_t)number[0] << 8 | number[1];
            if ((reply + 1) * reply_bytes > length)
                exit(1);
            memcpy(batch + n * reply_bytes, replies + reply * reply_bytes, reply_bytes);
        }
        write_all(fd, batch, count * reply_bytes);
        held -= count * request_bytes;
        memmove(buffer, buffer + count * request_bytes, held);
    }
}

int main(int count, char **words)
{
    if (count == 8 && !strcmp(words[1], "drive"))
        drive(atoi(words[2]), words[3], atol(words[4]), atol(words[5]), atol(words[6]),
              atof(words[7]));
    else if (count == 7 && !strcmp(words[1], "floor"))
        serve(atoi(words[2]), words[3], atol(words[4]), atol(words[5]), atol(words[6]));
    else
        return 2;
    return 0;
}
