"""What the kernel of the operating system offers and Cython does not declare."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        void *ptr
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event *event)
    int epoll_wait(int epfd, epoll_event *events, int maxevents, int timeout)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD
    uint32_t EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void *to, size_t size, int flags)
    ssize_t send(int fd, const void *at, size_t size, int flags)
    int SOL_SOCKET, SO_LINGER
    struct linger:
        int l_onoff
        int l_linger
    int shutdown(int fd, int how)
    int MSG_DONTWAIT, MSG_NOSIGNAL, SHUT_WR
    ctypedef unsigned int socklen_t
    struct sockaddr:
        pass
    struct sockaddr_storage:
        unsigned short ss_family
    int getpeername(int fd, sockaddr *address, socklen_t *size)
    int getsockname(int fd, sockaddr *address, socklen_t *size)
    int setsockopt(int fd, int level, int name, const void *value, socklen_t size)
    int AF_INET, AF_INET6

cdef extern from "<netinet/in.h>" nogil:
    struct in_addr:
        uint32_t s_addr
    struct sockaddr_in:
        in_addr sin_addr
    struct in6_addr:
        pass
    struct sockaddr_in6:
        uint16_t sin6_port        # an IPv4 address has its port in the same place
        in6_addr sin6_addr
    uint16_t ntohs(uint16_t number)
    int IPPROTO_TCP

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_CONGESTION

cdef extern from "<sys/uio.h>" nogil:
    cdef struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "<sys/socket.h>" nogil:
    cdef struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t sendmsg(int fd, const msghdr *message, int flags)

cdef extern from "<time.h>" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int CLOCK_MONOTONIC
    int clock_gettime(int clock, timespec *now)

cdef inline uint64_t monotonic_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <uint64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<sys/timerfd.h>" nogil:
    cdef struct itimerspec:
        timespec it_interval
        timespec it_value
    int timerfd_create(int clock, int flags)
    int timerfd_settime(int fd, int flags, const itimerspec *value, itimerspec *old)
    int TFD_CLOEXEC, TFD_NONBLOCK

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int initial, int flags)
    int eventfd_read(int fd, uint64_t *value)
    int eventfd_write(int fd, uint64_t value)
    int EFD_CLOEXEC, EFD_NONBLOCK
