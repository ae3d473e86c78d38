/* The watchers of sse.py: one thread, one epoll, and the writer whose writes they wait for.
 *
 *   watch PORT PATH WATCHERS WRITES WARM_UP PAUSE_US
 *
 * Each write is timed from before its first byte is sent until a watcher has read its record. Prints
 * "ready" when the writes begin that count, "done" when they are over, and then as many doubles as there
 * were deliveries, in seconds. In Python, reading took as long as what it measured.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 65536, MOST = 4096, PATIENCE_MS = 10000 };

static char heard[ROOM];

static void die(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static int connected(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static ssize_t heard_from(int fd) {
    ssize_t size = recv(fd, heard, ROOM, 0);
    if (size <= 0)
        die("recv");
    return size;
}

static int watcher(int port, const char *path) {
    char request[512], all[ROOM];
    size_t size = 0;
    int fd = connected(port), length;
    length = snprintf(request, sizeof request, "GET %s/tail HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", path);
    if (send(fd, request, (size_t)length, 0) < 0)
        die("send");
    do {
        ssize_t more = heard_from(fd);
        if (size + (size_t)more > sizeof all)
            die("too much before caught-up");
        memcpy(all + size, heard, (size_t)more);
        size += (size_t)more;
    } while (memmem(all, size, "caught-up", 9) == NULL);
    return fd;
}

static void write_once(int writer, const char *path, int number) {
    char body[128], request[640];
    int size = snprintf(body, sizeof body, "{\"records\": [{\"data\": {\"n\": %d}}]}", number);
    int length = snprintf(request, sizeof request,
                          "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                          "Content-Length: %d\r\n\r\n%s", path, size, body);
    if (send(writer, request, (size_t)length, 0) != length)
        die("send");
}

int main(int argc, char **argv) {
    if (argc != 7)
        return 2;
    int port = atoi(argv[1]), watchers = atoi(argv[3]), writes = atoi(argv[4]), warm_up = atoi(argv[5]);
    useconds_t pause = (useconds_t)atoi(argv[6]);
    int poll = epoll_create1(0);
    struct epoll_event ready[MOST];
    double *delays = malloc(sizeof(double) * (size_t)watchers * (size_t)(writes > warm_up ? writes : warm_up));
    if (poll < 0 || delays == NULL || watchers < 1 || watchers > MOST)
        die("start");
    for (int i = 0; i < watchers; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = watcher(port, argv[2])};
        epoll_ctl(poll, EPOLL_CTL_ADD, event.data.fd, &event);
    }
    int writer = connected(port);
    size_t noted = 0;
    for (int number = 0; number < writes + warm_up; number++) {
        if (number == warm_up) {
            noted = 0;
            puts("ready");
            fflush(stdout);
        }
        double began = now();
        int missing = watchers;
        write_once(writer, argv[2], number);
        while (missing) {
            int count = epoll_wait(poll, ready, MOST, PATIENCE_MS);
            if (count <= 0)
                die("nothing came");
            for (int i = 0; i < count; i++) {
                ssize_t size = heard_from(ready[i].data.fd);
                double at = now();
                if (memmem(heard, (size_t)size, "\"$seq\"", 6) != NULL) {
                    delays[noted++] = at - began;
                    missing--;
                }
            }
        }
        heard_from(writer);
        usleep(pause);
    }
    puts("done");
    fflush(stdout);
    return fwrite(delays, sizeof(double), noted, stdout) != noted;
}
