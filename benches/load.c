/* The load generator of the benches: one thread, one epoll, no opinion about the server.
 *
 * It drives any NATS server in one mode and prints one line of JSON. It counts what it sees: a run
 * in which a message was lost, repeated or answered with an error says so in "errors" and exits 1.
 * Streams and consumers are made beforehand by the harness.
 *
 *   pub      publishers only; done when every publisher's last PING is answered
 *   fan      publishers -> subscribers, each subscriber gets every message
 *   wild     many subjects, each covered by exactly one wildcard subscription
 *   literal  many subjects, each with exactly one literal subscription
 *   request  requesters -> one responder, latency per request
 *   jspub    publish with a window of outstanding acks, latency per ack; --spread K goes round
 *            K subjects
 *   fetch    pull a consumer's messages batch by batch, optionally acking each; the sequences
 *            must be --first, then each time --stride more
 *
 * Publishers are held back so that at most WINDOW_BYTES are under way: a server is measured at work,
 * not at closing slow consumers. The server's CPU time is read around the timed part only.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { IN_CAP = 1 << 19, BURST_BYTES = 1 << 16, WINDOW_BYTES = 1 << 21, MAX_CONNS = 1024 };

typedef struct {
    const char *mode, *host, *subject, *stream, *consumer;
    int port, publishers, subscribers, size, window, batch, subjects, ack, pid, patience, spread, first, stride;
    long messages;
} Options;

typedef struct Conn {
    int fd, number, wants_out, dirty, awaiting_pong;
    char *in;
    size_t in_start, in_end;
    char *out; /* small writes: subscriptions, requests, replies, acks */
    size_t out_start, out_len, out_cap;
    const char *burst; /* unsent rest of a slice of the template */
    size_t burst_len;
    long sent, quota, received, outstanding;
    uint64_t *asked_at; /* per window slot */
    char *asks;         /* ready-made requests, one per window slot; NULL where each differs */
    size_t *ask_ends;
    long fetch_left;
} Conn;

typedef struct {
    const char *subject, *reply, *payload, *headers;
    int subject_len, reply_len, payload_len, headers_len;
} Message;

/* Ready-made PUB bytes; publishers send slices of it without copying. */
typedef struct {
    char *bytes;
    size_t *offsets;
    long count;
} Template;

static Options opt = {.mode = "fan", .host = "127.0.0.1", .subject = "bench.x", .stream = "BENCH",
                      .consumer = "bench", .publishers = 1, .subscribers = 1, .size = 128,
                      .window = 1, .batch = 100, .subjects = 10000, .patience = 20, .first = 1, .stride = 1,
                      .messages = 100000};
static Conn *conns[MAX_CONNS];
static int conn_count, first_subscriber, epoll_fd;
static Template template;
static long errors, delivered;
static uint64_t *latency_ns;
static long latency_count;
static uint64_t started_at, progress_at; /* progress: when something last came */
static void (*on_message)(Conn *, const Message *);
static char *filler;

static void die(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(2);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* CPU time of all threads of the server, living and gone, in nanoseconds. */
static uint64_t server_cpu_ns(void) {
    clockid_t id;
    struct timespec t;
    if (!opt.pid || clock_getcpuclockid(opt.pid, &id) || clock_gettime(id, &t))
        return 0;
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* ---- connections ---- */

static void watch(Conn *c, int out) {
    struct epoll_event e = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = c};
    if (c->wants_out == out)
        return;
    c->wants_out = out;
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e))
        die("epoll_ctl");
}

static void put(Conn *c, const char *data, size_t size) {
    size_t end = c->out_start + c->out_len;
    if (end + size > c->out_cap) {
        c->out_cap = (end + size) * 2;
        c->out = realloc(c->out, c->out_cap);
    }
    memcpy(c->out + end, data, size);
    c->out_len += size;
    c->dirty = 1;
}

static void put_text(Conn *c, const char *text) { put(c, text, strlen(text)); }

static ssize_t try_send(Conn *c, const char *data, size_t size) {
    ssize_t n = send(c->fd, data, size, MSG_NOSIGNAL);
    if (n >= 0)
        return n;
    if (errno == EAGAIN || errno == EINTR)
        return 0;
    die("the server closed a connection");
    return -1;
}

/* A burst in progress goes first: its messages must not be cut by other writes. */
static void flush(Conn *c) {
    if (c->burst_len) {
        ssize_t n = try_send(c, c->burst, c->burst_len);
        c->burst += n;
        c->burst_len -= (size_t)n;
    }
    if (!c->burst_len && c->out_len) {
        size_t n = (size_t)try_send(c, c->out + c->out_start, c->out_len);
        c->out_len -= n;
        c->out_start = c->out_len ? c->out_start + n : 0;
    }
    c->dirty = 0;
    watch(c, c->burst_len || c->out_len);
}

static Conn *connect_one(void) {
    Conn *c = calloc(1, sizeof *c);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    int on = 1;
    inet_pton(AF_INET, opt.host, &to.sin_addr);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to))
        die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &e);
    c->in = malloc(IN_CAP);
    c->number = conn_count;
    conns[conn_count++] = c;
    put_text(c, "CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":true,\"headers\":true,"
                "\"no_responders\":false,\"protocol\":1,\"lang\":\"c\",\"version\":\"1\"}\r\n");
    return c;
}

/* ---- reading ---- */

static int split(const char *at, const char *end, const char **parts, int *lens, int most) {
    int n = 0;
    while (at < end && n < most) {
        const char *space = memchr(at, ' ', (size_t)(end - at));
        const char *stop = space ? space : end;
        parts[n] = at;
        lens[n++] = (int)(stop - at);
        at = stop + 1;
    }
    return n;
}

static long number(const char *at, int len) {
    long v = 0;
    for (int i = 0; i < len && at[i] >= '0' && at[i] <= '9'; i++)
        v = v * 10 + (at[i] - '0');
    return v;
}

/* Take a MSG or HMSG whose line is complete; 0 while its payload is not. */
static size_t take_message(Conn *c, const char *at, const char *line_end, const char *end) {
    const char *parts[6];
    int lens[6];
    int has_headers = at[0] == 'H';
    int n = split(at + (has_headers ? 5 : 4), line_end, parts, lens, 6);
    int with_reply = n == (has_headers ? 5 : 4);
    if (n < 3 + has_headers || n > 4 + has_headers) {
        errors++;
        return (size_t)(line_end - at) + 2;
    }
    long total = number(parts[n - 1], lens[n - 1]);
    long head = has_headers ? number(parts[n - 2], lens[n - 2]) : 0;
    const char *body = line_end + 2;
    if (end - body < total + 2)
        return 0;
    Message m = {.subject = parts[0], .subject_len = lens[0],
                 .reply = with_reply ? parts[2] : "", .reply_len = with_reply ? lens[2] : 0,
                 .headers = body, .headers_len = (int)head,
                 .payload = body + head, .payload_len = (int)(total - head)};
    on_message(c, &m);
    return (size_t)(body - at) + (size_t)total + 2;
}

static size_t take_one(Conn *c, const char *at, const char *end) {
    const char *lf = memchr(at, '\n', (size_t)(end - at));
    if (!lf)
        return 0;
    if (at[0] == 'M' || at[0] == 'H')
        return take_message(c, at, lf - 1, end);
    if (!strncmp(at, "PONG", 4)) {
        c->awaiting_pong--;
    } else if (!strncmp(at, "PING", 4)) {
        put_text(c, "PONG\r\n");
    } else if (at[0] == '-') {
        fprintf(stderr, "load: %.*s\n", (int)(lf - at), at);
        errors++;
    }
    return (size_t)(lf - at) + 1;
}

static void read_from(Conn *c) {
    ssize_t n = recv(c->fd, c->in + c->in_end, IN_CAP - c->in_end, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        die("the server closed a connection");
    if (n < 0)
        return;
    progress_at = now_ns();
    c->in_end += (size_t)n;
    while (c->in_start < c->in_end) {
        size_t used = take_one(c, c->in + c->in_start, c->in + c->in_end);
        if (!used)
            break;
        c->in_start += used;
    }
    memmove(c->in, c->in + c->in_start, c->in_end - c->in_start);
    c->in_end -= c->in_start;
    c->in_start = 0;
    if (c->in_end == IN_CAP)
        die("a message larger than the read buffer");
}

/* ---- the loop ---- */

static void round_trip(int wait_ms) {
    struct epoll_event events[128];
    int n = epoll_wait(epoll_fd, events, 128, wait_ms);
    for (int i = 0; i < n; i++) {
        Conn *c = events[i].data.ptr;
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            read_from(c);
        if (events[i].events & EPOLLOUT)
            c->dirty = 1;
    }
    for (int i = 0; i < conn_count; i++)
        if (conns[i]->dirty)
            flush(conns[i]);
    if (now_ns() - progress_at > (uint64_t)opt.patience * 1000000000ull) {
        fprintf(stderr, "load: no progress: %ld delivered, %ld errors\n", delivered, errors);
        exit(3);
    }
}

static int pongs_missing(void) {
    for (int i = 0; i < conn_count; i++)
        if (conns[i]->awaiting_pong > 0)
            return 1;
    return 0;
}

static void ping(Conn *c) {
    c->awaiting_pong++;
    put_text(c, "PING\r\n");
}

/* After this the server has taken every line written so far. */
static void settle(void) {
    progress_at = now_ns();
    for (int i = 0; i < conn_count; i++)
        ping(conns[i]);
    while (pongs_missing())
        round_trip(100);
}

/* ---- publishing from the template ---- */

static void add_to_template(const char *subject) {
    size_t at = template.offsets[template.count];
    int line = sprintf(template.bytes + at, "PUB %s %d\r\n", subject, opt.size);
    memcpy(template.bytes + at + line, filler, (size_t)opt.size);
    memcpy(template.bytes + at + line + opt.size, "\r\n", 2);
    template.offsets[++template.count] = at + (size_t)line + (size_t)opt.size + 2;
}

static void make_template(long count) {
    template.bytes = malloc((size_t)count * ((size_t)opt.size + 64));
    template.offsets = calloc((size_t)count + 1, sizeof *template.offsets);
}

static void one_subject(void) {
    long count = BURST_BYTES / (opt.size + 24) + 1;
    make_template(count);
    for (long i = 0; i < count; i++)
        add_to_template(opt.subject);
}

/* Subjects in a scattered but fixed order, so that neighbours share nothing. */
static void many_subjects(void) {
    char subject[64];
    make_template(opt.subjects);
    for (long i = 0; i < opt.subjects; i++) {
        long n = (i * 7919) % opt.subjects;
        sprintf(subject, "%s.%ld.%ld", opt.subject, n % 100, n / 100);
        add_to_template(subject);
    }
}

/* Queue the next slice of at most ``room`` messages; 0 when nothing may be sent now. */
static long next_burst(Conn *c, long room) {
    long at = c->sent % template.count, n = c->quota - c->sent;
    if (c->burst_len || n <= 0)
        return 0;
    if (n > room)
        n = room;
    if (n > template.count - at)
        n = template.count - at;
    while (n > 1 && template.offsets[at + n] - template.offsets[at] > BURST_BYTES)
        n -= n / 4 + 1 < n ? n / 4 + 1 : 1;
    if (n <= 0)
        return 0;
    c->burst = template.bytes + template.offsets[at];
    c->burst_len = template.offsets[at + n] - template.offsets[at];
    c->sent += n;
    if (c->sent == c->quota)
        ping(c);
    flush(c);
    return n;
}

/* ---- what each mode does with a message ---- */

static void count_delivery(Conn *c, const Message *m) {
    c->received++;
    delivered++;
    if (m->payload_len != opt.size)
        errors++;
}

static void answer(Conn *c, const Message *m) {
    char line[256];
    int n = sprintf(line, "PUB %.*s %d\r\n", m->reply_len, m->reply, m->payload_len);
    put(c, line, (size_t)n);
    put(c, m->payload, (size_t)m->payload_len);
    put(c, "\r\n", 2);
}

static void asked(Conn *c, long slot);

static int asked_size(void) { return !strcmp(opt.mode, "get") ? 0 : opt.size; /* its answer has that */ }

static int ask_line(char *line, Conn *c, long slot, const char *token) {
    return sprintf(line, "PUB %s%s _INBOX.%d.%ld %d\r\n", opt.subject, token, c->number, slot,
                   asked_size());
}

/* Where all requests of a slot are alike they are made beforehand: the run is the server's. */
static void make_asks(Conn *c) {
    size_t end = 0, size = (size_t)asked_size();
    c->asks = malloc((size_t)opt.window * (size + 256));
    c->ask_ends = malloc((size_t)opt.window * sizeof *c->ask_ends);
    for (long slot = 0; slot < opt.window; slot++) {
        end += (size_t)ask_line(c->asks + end, c, slot, "");
        memcpy(c->asks + end, filler, size);
        memcpy(c->asks + end + size, "\r\n", 2);
        c->ask_ends[slot] = end += size + 2;
    }
}

static void ask(Conn *c, long slot) {
    if (c->asks) {
        size_t start = slot ? c->ask_ends[slot - 1] : 0;
        put(c, c->asks + start, c->ask_ends[slot] - start);
    } else {
        char line[256], token[64];
        long k = c->sent % opt.spread;
        sprintf(token, ".%ld.%ld", k % 100, k / 100);
        put(c, line, (size_t)ask_line(line, c, slot, token));
        put(c, filler, (size_t)asked_size());
        put(c, "\r\n", 2);
    }
    asked(c, slot);
}

static void ask_to_create(Conn *c, long slot) {
    char name[64], body[512], line[1024];
    sprintf(name, "c%d_%d_%ld", (int)getpid(), c->number, c->sent);
    int n = sprintf(body,
                    "{\"stream_name\":\"%s\",\"config\":{\"name\":\"%s\",\"ack_policy\":\"none\","
                    "\"deliver_policy\":\"all\",\"replay_policy\":\"instant\",\"mem_storage\":true,"
                    "\"num_replicas\":1,\"inactive_threshold\":60000000000}}",
                    opt.stream, name);
    sprintf(line, "PUB $JS.API.CONSUMER.CREATE.%s.%s _INBOX.%d.%ld %d\r\n%s\r\n", opt.stream, name,
            c->number, slot, n, body);
    put_text(c, line);
    asked(c, slot);
}

static void ask_next(Conn *c, long slot) {
    if (!strcmp(opt.mode, "create"))
        ask_to_create(c, slot);
    else
        ask(c, slot);
}

static void asked(Conn *c, long slot) {
    c->asked_at[slot] = progress_at; /* when the answer before it came */
    c->sent++;
    c->outstanding++;
}

static int is_good_ack(const Message *m) {
    return !m->headers_len && memmem(m->payload, (size_t)m->payload_len, "\"seq\":", 6) &&
           !memmem(m->payload, (size_t)m->payload_len, "\"error\"", 7);
}

static void take_answer(Conn *c, const Message *m, int good) {
    const char *dot = memrchr(m->subject, '.', (size_t)m->subject_len);
    long slot = number(dot + 1, (int)(m->subject + m->subject_len - dot - 1));
    if (!good || slot >= opt.window || !c->asked_at[slot]) {
        if (!errors++)
            fprintf(stderr, "load: bad answer: %.*s\n", m->payload_len, m->payload);
        return;
    }
    latency_ns[latency_count++] = progress_at - c->asked_at[slot];
    c->asked_at[slot] = 0;
    c->received++;
    c->outstanding--;
    delivered++;
    if (c->sent < c->quota)
        ask_next(c, slot);
}

static void take_reply(Conn *c, const Message *m) {
    if (c->number == first_subscriber)
        answer(c, m);
    else
        take_answer(c, m, m->payload_len == opt.size && !m->headers_len);
}

static void take_ack(Conn *c, const Message *m) { take_answer(c, m, is_good_ack(m)); }

static void take_value(Conn *c, const Message *m) {
    take_answer(c, m, m->headers_len > 16 && m->payload_len == opt.size);
}

static void take_created(Conn *c, const Message *m) {
    take_answer(c, m, memmem(m->payload, (size_t)m->payload_len, "\"created\":", 10) != NULL);
}

static long stream_seq(const Message *m);

/* An ordered consumer: pushed without acks; flow control asks for an answer, heartbeats do not. */
static void ask_ordered(Conn *c) {
    char body[512], line[1024];
    int n = sprintf(body,
                    "{\"stream_name\":\"%s\",\"config\":{\"deliver_subject\":\"_INBOX.0\",\"ack_policy\":"
                    "\"none\",\"deliver_policy\":\"all\",\"replay_policy\":\"instant\",\"max_deliver\":1,"
                    "\"flow_control\":true,\"idle_heartbeat\":5000000000,\"mem_storage\":true,"
                    "\"num_replicas\":1,\"inactive_threshold\":60000000000}}",
                    opt.stream);
    sprintf(line, "PUB $JS.API.CONSUMER.CREATE.%s _INBOX.api %d\r\n%s\r\n", opt.stream, n, body);
    put_text(c, line);
}

static void take_ordered(Conn *c, const Message *m) {
    char line[256];
    if (m->reply_len > 8 && !memcmp(m->reply, "$JS.ACK.", 8)) {
        if (delivered >= opt.messages)
            return; /* the stream may hold more than was asked for */
        if (stream_seq(m) != ++delivered || m->payload_len != opt.size)
            errors++;
        c->received++;
    } else if (m->reply_len) {
        sprintf(line, "PUB %.*s 0\r\n\r\n", m->reply_len, m->reply);
        put_text(c, line);
    }
}

static void ask_batch(Conn *c) {
    char body[64], line[256];
    int n = sprintf(body, "{\"batch\":%d,\"expires\":5000000000}", opt.batch);
    sprintf(line, "PUB $JS.API.CONSUMER.MSG.NEXT.%s.%s _INBOX.%d %d\r\n%s\r\n", opt.stream,
            opt.consumer, c->number, n, body);
    put_text(c, line);
    c->fetch_left = opt.batch;
}

/* $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<ts>.<pending> */
static long stream_seq(const Message *m) {
    const char *at = m->reply, *end = m->reply + m->reply_len;
    for (int dots = 0; at < end && dots < 5; at++)
        dots += *at == '.';
    return number(at, (int)(end - at));
}

/* A server that is slow to find the next message may say that it is still there: no fault. */
static int is_heartbeat(const Message *m) {
    return m->headers_len > 12 && !memcmp(m->headers, "NATS/1.0 100", 12);
}

static void take_fetched(Conn *c, const Message *m) {
    char line[512];
    if (is_heartbeat(m))
        return;
    if (m->reply_len < 8 || memcmp(m->reply, "$JS.ACK.", 8)) {
        if (delivered < opt.messages && !errors++)
            fprintf(stderr, "load: status: %.*s\n", m->headers_len, m->headers);
        return;
    }
    if (stream_seq(m) != opt.first + delivered * opt.stride || m->payload_len != opt.size)
        errors++;
    if (opt.ack) {
        int n = sprintf(line, "PUB %.*s 4\r\n+ACK\r\n", m->reply_len, m->reply);
        put(c, line, (size_t)n);
    }
    c->received++;
    if (++delivered < opt.messages && --c->fetch_left == 0)
        ask_batch(c);
}

/* ---- the modes ---- */

static void open_publishers(void) {
    for (int i = 0; i < opt.publishers; i++) {
        Conn *c = connect_one();
        c->quota = opt.messages / opt.publishers;
    }
    opt.messages = opt.messages / opt.publishers * opt.publishers;
    first_subscriber = conn_count;
}

static void subscribe(Conn *c, const char *subject, long sid) {
    char line[256];
    sprintf(line, "SUB %s %ld\r\n", subject, sid);
    put_text(c, line);
}

static void open_subscribers(const char *mode) {
    char subject[64];
    for (int i = 0; i < opt.subscribers; i++)
        connect_one();
    if (!strcmp(mode, "fan"))
        for (int i = 0; i < opt.subscribers; i++)
            subscribe(conns[first_subscriber + i], opt.subject, 1);
    if (!strcmp(mode, "wild"))
        for (int i = 0; i < 100; i++) {
            sprintf(subject, "%s.%d.*", opt.subject, i);
            subscribe(conns[first_subscriber + i % opt.subscribers], subject, i + 1);
        }
    if (!strcmp(mode, "literal"))
        for (int i = 0; i < opt.subjects; i++) {
            sprintf(subject, "%s.%d.%d", opt.subject, i % 100, i / 100);
            subscribe(conns[first_subscriber + i % opt.subscribers], subject, i + 1);
        }
}

static long slowest(void) {
    long least = conns[first_subscriber]->received;
    for (int i = first_subscriber + 1; i < conn_count; i++)
        if (conns[i]->received < least)
            least = conns[i]->received;
    return least;
}

static void run_publishers(int every_subscriber) {
    long wire = opt.size + 32, window = WINDOW_BYTES / wire + 64, published = 0;
    int has_subscribers = conn_count > first_subscriber;
    long copies = every_subscriber ? opt.subscribers : 1;
    long expected = has_subscribers ? opt.messages * copies : 0;
    while (published < opt.messages || delivered < expected || pongs_missing()) {
        long done = !has_subscribers ? published : every_subscriber ? slowest() : delivered;
        long moved = 0, room = window - (published - done);
        for (int i = 0; i < opt.publishers; i++) {
            long n = next_burst(conns[i], room - moved);
            moved += n;
        }
        published += moved;
        round_trip(moved ? 0 : 50);
    }
}

static void run_asking(void) {
    for (int i = 0; i < opt.publishers; i++)
        for (long slot = 0; slot < opt.window && conns[i]->sent < conns[i]->quota; slot++)
            ask_next(conns[i], slot);
    round_trip(0); /* sends them: no answer comes before that */
    while (delivered < opt.messages && errors < 100)
        round_trip(50);
}

static void prepare_asking(int with_responder) {
    char subject[64];
    for (int i = 0; i < opt.publishers; i++) {
        conns[i]->asked_at = calloc((size_t)opt.window, sizeof(uint64_t));
        if (!opt.spread && strcmp(opt.mode, "create"))
            make_asks(conns[i]);
        sprintf(subject, "_INBOX.%d.*", i);
        subscribe(conns[i], subject, 1);
    }
    if (with_responder)
        subscribe(connect_one(), opt.subject, 1);
    latency_ns = malloc((size_t)opt.messages * sizeof *latency_ns);
}

static void run_fetch(void) {
    if (!strcmp(opt.mode, "ordered"))
        ask_ordered(conns[0]);
    else
        ask_batch(conns[0]);
    round_trip(0);
    while (delivered < opt.messages && errors < 100)
        round_trip(50);
    ping(conns[0]);
    while (pongs_missing())
        round_trip(50);
}

static int is_asking(void) {
    return !strcmp(opt.mode, "request") || !strcmp(opt.mode, "jspub") || !strcmp(opt.mode, "get") ||
           !strcmp(opt.mode, "create");
}

static void prepare(void) {
    const char *mode = opt.mode;
    int asking = is_asking(), pushed = !strcmp(mode, "ordered");
    if (!strcmp(mode, "fetch") || pushed)
        opt.publishers = 1;
    open_publishers();
    on_message = count_delivery;
    if (asking) {
        prepare_asking(!strcmp(mode, "request"));
        on_message = !strcmp(mode, "request")  ? take_reply
                     : !strcmp(mode, "get")    ? take_value
                     : !strcmp(mode, "create") ? take_created
                                               : take_ack;
    } else if (!strcmp(mode, "fetch") || pushed) {
        subscribe(conns[0], "_INBOX.0", 1);
        on_message = pushed ? take_ordered : take_fetched;
    } else {
        if (strcmp(mode, "pub"))
            open_subscribers(mode);
        if (!strcmp(mode, "wild") || !strcmp(mode, "literal"))
            many_subjects();
        else
            one_subject();
    }
    settle();
}

static void run(void) {
    if (is_asking())
        run_asking();
    else if (!strcmp(opt.mode, "fetch") || !strcmp(opt.mode, "ordered"))
        run_fetch();
    else
        run_publishers(!strcmp(opt.mode, "fan"));
}

/* ---- the report ---- */

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double percentile_us(int p) {
    if (!latency_count)
        return 0;
    return (double)latency_ns[(latency_count - 1) * p / 100] / 1e3;
}

static int report(uint64_t elapsed_ns, uint64_t cpu_ns) {
    long expected = opt.messages;
    if (!strcmp(opt.mode, "pub"))
        expected = 0;
    if (!strcmp(opt.mode, "fan"))
        expected *= opt.subscribers;
    if (delivered != expected)
        errors++;
    qsort(latency_ns, (size_t)latency_count, sizeof *latency_ns, by_value);
    double seconds = (double)elapsed_ns / 1e9;
    printf("{\"mode\":\"%s\",\"messages\":%ld,\"deliveries\":%ld,\"seconds\":%.6f,\"rate\":%.1f,"
           "\"cpu_ns\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"errors\":%ld}\n",
           opt.mode, opt.messages, delivered, seconds, (double)opt.messages / seconds,
           (double)cpu_ns / (double)opt.messages, percentile_us(50), percentile_us(99), errors);
    return errors ? 1 : 0;
}

static int set_option(const char *name, const char *value) {
    struct { const char *name; const char **text; int *number; } known[] = {
        {"--mode", &opt.mode, NULL}, {"--host", &opt.host, NULL}, {"--subject", &opt.subject, NULL},
        {"--stream", &opt.stream, NULL}, {"--consumer", &opt.consumer, NULL},
        {"--port", NULL, &opt.port}, {"--publishers", NULL, &opt.publishers},
        {"--subscribers", NULL, &opt.subscribers}, {"--size", NULL, &opt.size},
        {"--window", NULL, &opt.window}, {"--batch", NULL, &opt.batch},
        {"--subjects", NULL, &opt.subjects}, {"--ack", NULL, &opt.ack}, {"--pid", NULL, &opt.pid},
        {"--patience", NULL, &opt.patience}, {"--spread", NULL, &opt.spread},
        {"--first", NULL, &opt.first}, {"--stride", NULL, &opt.stride}};
    if (!strcmp(name, "--messages")) {
        opt.messages = atol(value);
        return 1;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i].name)) {
            if (known[i].text)
                *known[i].text = value;
            else
                *known[i].number = atoi(value);
            return 1;
        }
    return 0;
}

static int is_mode(const char *mode) {
    const char *known[] = {"pub",   "fan",   "wild",    "literal", "request",
                           "jspub", "fetch", "ordered", "get",     "create"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(mode, known[i]))
            return 1;
    return 0;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i += 2)
        if (i + 1 >= argc || !set_option(argv[i], argv[i + 1])) {
            fprintf(stderr, "load: unknown option %s\n", argv[i]);
            return 2;
        }
    if (!is_mode(opt.mode) || opt.publishers < 1 || opt.window < 1 || opt.messages < 1 ||
        opt.publishers + opt.subscribers + 1 > MAX_CONNS || opt.size < 0 || opt.size > IN_CAP / 2) {
        fprintf(stderr, "load: an option is out of range\n");
        return 2;
    }
    epoll_fd = epoll_create1(0);
    filler = malloc((size_t)opt.size + 1);
    memset(filler, 'x', (size_t)opt.size);
    prepare();
    delivered = 0;
    uint64_t cpu = server_cpu_ns();
    started_at = progress_at = now_ns();
    run();
    uint64_t elapsed = now_ns() - started_at;
    cpu = server_cpu_ns() - cpu;
    settle(); /* repeated deliveries would arrive now */
    return report(elapsed, cpu);
}
